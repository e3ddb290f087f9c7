#include "apps/sluicerun/certificates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>

#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/descriptor.h"
#include "dist/net/local.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

// A new file, or none: never through a link that somebody put there.
void WriteNew(const std::string& path, std::string_view text, mode_t mode) {
  const dist::Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  bool good = file.get() >= 0;
  while (good && !text.empty()) {
    const ssize_t n = write(file.get(), text.data(), text.size());
    good = n > 0;
    if (good) text.remove_prefix(static_cast<size_t>(n));
  }
  if (good) return;
  throw Error(Code::kUnavailable,
              fmt::format("cannot write '{}': {}", path,
                          std::generic_category().message(errno)));
}

// `give` has what a process of this role and number knows itself by.
CertificateFiles FilesOf(int size, int servers,
                         const std::function<Result<dist::Credentials>(
                             const std::string& role, int number)>& give) {
  CertificateFiles files;
  const auto add = [&](const std::string& role, int count) {
    for (int number = 0; number < count; ++number) {
      const dist::Credentials own = give(role, number).ValueOrThrow();
      if (files.empty()) files.emplace_back("ca.pem", own.authority);
      const std::string name = fmt::format("{}-{}", role, number);
      files.emplace_back(name + ".pem", own.certificate);
      files.emplace_back(name + ".key", own.key);
    }
  };
  add(std::string(dist::kWorkerRole), size);
  add(std::string(dist::kServerRole), servers);
  return files;
}

}  // namespace

CertificateFiles NewCertificates(int size, int servers, int days) {
  const dist::Authority authority =
      dist::Authority::Create(dist::RandomWord().ValueOrThrow()).ValueOrThrow();
  return FilesOf(size, servers, [&](const std::string& role, int number) {
    return authority.Issue(role, number, std::chrono::hours(24) * days);
  });
}

CertificateFiles ReadCertificates(const std::string& folder, int size,
                                  int servers) {
  return FilesOf(size, servers, [&](const std::string& role, int number) {
    return dist::ReadCredentials(folder, role, number);
  });
}

void WriteCertificates(const std::string& folder, int size, int servers,
                       int days) {
  namespace fs = std::filesystem;
  const CertificateFiles files = NewCertificates(size, servers, days);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw Error(Code::kUnavailable,
                fmt::format("cannot make '{}': {}", folder,
                            std::generic_category().message(errno)));
  }
  std::error_code error;
  if (!fs::is_empty(folder, error) || error) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("'{}' is not an empty folder", folder));
  }
  for (const auto& [name, text] : files) {
    WriteNew(fmt::format("{}/{}", folder, name), text,
             name.ends_with(".key") ? 0600 : 0644);
  }
}

}  // namespace sluice::launcher
