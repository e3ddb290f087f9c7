#include "kernels/cuda/choice_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "sluice choices 1";
constexpr uintmax_t kMostBytes = uintmax_t{16} << 20;

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

// The key and choice of a line, or nothing.
std::optional<std::pair<std::string, ChoiceFile::Choice>> Parse(
    std::string_view line) {
  const size_t last = line.rfind('\t');
  if (last == std::string_view::npos || last == 0) return std::nullopt;
  const size_t first = line.rfind('\t', last - 1);
  if (first == std::string_view::npos || first == 0) return std::nullopt;
  const auto suggestion = NumberOf(line.substr(first + 1, last - first - 1));
  const auto engine = NumberOf(line.substr(last + 1));
  if (!suggestion || !engine) return std::nullopt;
  return std::pair(std::string(line.substr(0, first)),
                   ChoiceFile::Choice{*suggestion, *engine});
}

bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count <= 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return ::fsync(file) == 0;
}

}  // namespace

fs::path ChoiceFile::UserPath(const std::string& name) {
  const auto variable = [](const char* of) -> fs::path {
    const char* const value = std::getenv(of);  // NOLINT: nobody sets it here
    return value == nullptr ? "" : value;
  };
  fs::path folder = variable("XDG_CACHE_HOME");
  if (folder.empty()) {
    folder = variable("HOME");
    if (folder.empty()) return {};
    folder /= ".cache";
  }
  return folder / "sluice" / name;
}

std::optional<ChoiceFile::Choice> ChoiceFile::Find(const std::string& key) {
  MutexLock lock(mutex_);
  if (!read_) Read();
  const auto it = choices_.find(key);
  if (it == choices_.end()) return std::nullopt;
  return it->second;
}

void ChoiceFile::Keep(const std::string& key, const Choice& choice) {
  MutexLock lock(mutex_);
  Read();  // what other processes have added since
  choices_[key] = choice;
  Write();
}

void ChoiceFile::Read() {
  read_ = true;
  std::error_code error;
  if (path_.empty() || fs::file_size(path_, error) > kMostBytes || error) {
    return;
  }
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != kFormat) return;
  while (std::getline(file, line)) {
    // A choice of this process is kept over another's.
    if (auto choice = Parse(line)) choices_.insert(std::move(*choice));
  }
}

void ChoiceFile::Write() {
  if (path_.empty()) return;
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  fs::path temporary = path_;
  temporary += "." + std::to_string(::getpid()) + ".tmp";
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  std::string text(kFormat);
  text += '\n';
  for (const auto& [key, choice] : choices_) {
    text += key + '\t' + std::to_string(choice.suggestion) + '\t' +
            std::to_string(choice.engine) + '\n';
  }
  const bool written = WriteAll(file, text);
  if (::close(file) != 0 || !written) {
    fs::remove(temporary, error);
    return;
  }
  fs::rename(temporary, path_, error);
}

}  // namespace sluice::cuda
