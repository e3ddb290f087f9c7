// Any bytes make the members of a tar archive or an error: as a file, whose
// checksums stop most inputs, and with headers whose checksums are put right.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "io/records/tar.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

void Check(std::string_view archive) {
  testing::FaultFileSystem files;
  SLUICE_CHECK((*files.Create("f"))->Append(archive).ok());
  const auto file = files.OpenRead("f").ValueOrThrow();
  TarReader reader("f", *file);
  TarMember member;
  uint64_t end = 0;
  for (;;) {
    const auto more = reader.Next(&member);
    if (!more.ok()) {
      const Code code = more.status().code();
      SLUICE_CHECK(code == Code::kDataLoss || code == Code::kUnimplemented);
      return;
    }
    if (!*more) return;
    SLUICE_CHECK(member.offset >= end + kTarBlock);
    SLUICE_CHECK(member.offset <= archive.size());
    SLUICE_CHECK(member.size <= archive.size() - member.offset);
    end = member.offset + member.size;
  }
}

// Of every block, be it a header or not.
std::string WithChecksums(std::string archive) {
  for (size_t at = 0; at + kTarBlock <= archive.size(); at += kTarBlock) {
    archive.replace(at + 148, 8, "        ");
    unsigned sum = 0;
    for (size_t i = 0; i < kTarBlock; ++i) {
      sum += static_cast<unsigned char>(archive[at + i]);
    }
    archive.replace(at + 148, 6, fmt::format("{:06o}", sum));
  }
  return archive;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::Check(bytes);
  sluice::Check(sluice::WithChecksums(bytes));
  return 0;
}
