// The names of shards.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <optional>

#include "io/records/record_files.h"

namespace sluice {
namespace {

// A shard's name around its number. Shards of one set differ in that alone.
struct ShardName {
  std::string before, after;  // "train-" and "-of-00010"
  int64_t number, count;
};

// These take the end of a text away, if it is that.
bool TakeEnd(std::string_view* text, std::string_view end) {
  if (!text->ends_with(end)) return false;
  text->remove_suffix(end.size());
  return true;
}
std::optional<int64_t> TakeDigits(std::string_view* text) {
  constexpr size_t kFewest = 5;
  const size_t begin = text->find_last_not_of("0123456789") + 1;
  const std::string_view digits = text->substr(begin);
  int64_t number = 0;
  const char* end = digits.data() + digits.size();
  if (digits.size() < kFewest ||
      std::from_chars(digits.data(), end, number).ec != std::errc()) {
    return std::nullopt;
  }
  text->remove_suffix(digits.size());
  return number;
}

std::optional<ShardName> ParseShardName(std::string_view name,
                                        std::string_view part) {
  constexpr std::string_view kExtension = ".tfrecord";
  std::string_view rest = name;
  TakeEnd(&rest, kExtension);
  const auto count = TakeDigits(&rest);
  if (!count || !TakeEnd(&rest, "-of-")) return std::nullopt;
  const std::string_view after = name.substr(rest.size());
  const auto number = TakeDigits(&rest);
  if (!number || *number >= *count) return std::nullopt;
  const std::string_view before = rest;
  if (!TakeEnd(&rest, "-")) return std::nullopt;
  TakeEnd(&rest, kExtension);
  if (TakeEnd(&rest, part) && (rest.empty() || rest.ends_with('-'))) {
    return ShardName{std::string(before), std::string(after), *number, *count};
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> FindShards(const std::string& folder,
                                    std::string_view part, FileSystem& files) {
  std::optional<ShardName> any;
  std::map<int64_t, std::string> shards;
  for (const std::string& name : files.List(folder).ValueOrThrow()) {
    const auto shard = ParseShardName(name, part);
    if (!shard) continue;
    if (!any) any = shard;
    const bool same =
        any->before == shard->before && any->after == shard->after;
    // A number may be written with more zeros, too.
    if (!same || !shards.emplace(shard->number, name).second) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' holds two sets of shards of '{}': '{}' and "
                              "'{}'; keep one of them there",
                              folder, part, shards.begin()->second, name));
    }
  }
  if (!any) return {};
  constexpr size_t kShown = 3;
  const int64_t missing = any->count - static_cast<int64_t>(shards.size());
  std::vector<std::string> names;
  for (int64_t i = 0; i < any->count && names.size() < kShown; ++i) {
    if (shards.contains(i)) continue;
    names.push_back(fmt::format("{}{:05}{}", any->before, i, any->after));
  }
  if (missing > 0) {
    throw Error(
        Code::kNotFound,
        fmt::format(
            "'{}' has {} of {} shards of '{}'; missing: {}{}", folder,
            shards.size(), any->count, part, fmt::join(names, ", "),
            missing > static_cast<int64_t>(names.size()) ? ", ..." : ""));
  }
  std::vector<std::string> paths;
  for (const auto& [number, name] : shards) {
    paths.push_back(JoinPath(folder, name));
  }
  return paths;
}

}  // namespace sluice
