#include "kernels/cuda/runtime/choice_file.h"

#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/parse_number.h"
#include "kernels/cuda/runtime/user_cache.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "sluice choices 1";
constexpr uintmax_t kMostBytes = uintmax_t{16} << 20;

std::optional<int64_t> NumberOf(std::string_view text) {
  const auto value = ParseWhole<int64_t>(text);
  return value && *value >= 0 ? value : std::nullopt;
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

}  // namespace

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
  std::string text(kFormat);
  text += '\n';
  for (const auto& [key, choice] : choices_) {
    text += key + '\t' + std::to_string(choice.suggestion) + '\t' +
            std::to_string(choice.engine) + '\n';
  }
  WriteCacheFile(path_, text);
}

}  // namespace sluice::cuda
