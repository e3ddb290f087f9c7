// The names of shards.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <optional>

#include "io/files/file_pattern.h"
#include "io/records/record_files.h"
#include "io/records/tar_files.h"

namespace sluice {
namespace {

// A shard's name around its number. Shards of one set differ in that alone.
struct ShardName {
  std::string before, after;  // "train-" and "-of-00010"
  int64_t number = 0;
  size_t digits = 0;  // of the number
  std::optional<int64_t> count = {};
};

// These take the end of a text away, if it is that.
bool TakeEnd(std::string_view* text, std::string_view end) {
  if (!text->ends_with(end)) return false;
  text->remove_suffix(end.size());
  return true;
}
std::optional<int64_t> TakeDigits(std::string_view* text, size_t fewest) {
  constexpr size_t kMost = 18;  // that are surely an int64_t
  const size_t begin = text->find_last_not_of("0123456789") + 1;
  const std::string_view digits = text->substr(begin);
  if (digits.size() < fewest || digits.size() > kMost) return std::nullopt;
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text->remove_suffix(digits.size());
  return number;
}
// "train" or "old-train-" before it, of "train".
bool TakePart(std::string_view* text, std::string_view part) {
  return TakeEnd(text, part) && (text->empty() || text->ends_with('-'));
}

std::optional<ShardName> ParseRecordShard(std::string_view name,
                                          std::string_view part) {
  constexpr std::string_view kExtension = ".tfrecord";
  constexpr size_t kFewest = 5;
  std::string_view rest = name;
  TakeEnd(&rest, kExtension);
  const auto count = TakeDigits(&rest, kFewest);
  if (!count || !TakeEnd(&rest, "-of-")) return std::nullopt;
  const std::string_view after = name.substr(rest.size());
  const auto number = TakeDigits(&rest, kFewest);
  if (!number || *number >= *count) return std::nullopt;
  const std::string_view before = rest;
  if (!TakeEnd(&rest, "-")) return std::nullopt;
  TakeEnd(&rest, kExtension);
  if (!TakePart(&rest, part)) return std::nullopt;
  return ShardName{std::string(before), std::string(after), *number,
                   name.size() - before.size() - after.size(), count};
}

std::optional<ShardName> ParseTarShard(std::string_view name,
                                       std::string_view part) {
  constexpr size_t kFewest = 1;
  std::string_view rest = name;
  if (!TakeEnd(&rest, ".tar")) return std::nullopt;
  std::string_view after = name.substr(rest.size());
  auto number = TakeDigits(&rest, kFewest);
  std::optional<int64_t> count;
  if (number && TakeEnd(&rest, "-of-")) {
    count = number;
    after = name.substr(rest.size());
    number = TakeDigits(&rest, kFewest);
  }
  if (!number || (count && *number >= *count)) return std::nullopt;
  const std::string_view before = rest;
  if (!TakeEnd(&rest, "-") || !TakePart(&rest, part)) return std::nullopt;
  return ShardName{std::string(before), std::string(after), *number,
                   name.size() - before.size() - after.size(), count};
}

using Parse = std::optional<ShardName>(std::string_view name,
                                       std::string_view part);

// The names of a set by their numbers, and any of them.
struct NamedSet {
  std::optional<ShardName> any;
  std::map<int64_t, std::string> shards;
};

NamedSet ReadSet(const ListedFolder& folder, std::string_view part,
                 Parse* parse) {
  NamedSet set;
  auto& [any, shards] = set;
  for (const std::string& name : folder.names) {
    // Hidden, as are the files beside others that macOS keeps its own notes in:
    // "._tiny-train-00000-of-00008".
    if (name.starts_with('.')) continue;
    const auto shard = parse(name, part);
    if (!shard) continue;
    if (!any) any = shard;
    const bool same =
        any->before == shard->before && any->after == shard->after;
    // A number may be written with more zeros, too.
    if (!same || !shards.emplace(shard->number, name).second) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' holds two sets of shards of '{}': '{}' and "
                              "'{}'; keep one of them there",
                              folder.path, part, shards.begin()->second, name));
    }
  }
  return set;
}

int64_t CountOf(const NamedSet& set) {
  return set.any->count.value_or(set.shards.rbegin()->first + 1);
}

// Throws where shards are missing.
void RequireAll(const std::string& folder, std::string_view part,
                const NamedSet& set) {
  constexpr size_t kShown = 3;
  const auto& [any, shards] = set;
  const int64_t count = CountOf(set);
  const int64_t missing = count - static_cast<int64_t>(shards.size());
  if (missing == 0) return;
  std::vector<std::string> names;
  for (int64_t i = 0; i < count && names.size() < kShown; ++i) {
    if (shards.contains(i)) continue;
    names.push_back(
        fmt::format("{}{:0{}}{}", any->before, i, any->digits, any->after));
  }
  throw Error(
      Code::kNotFound,
      fmt::format("'{}' has {} of {} shards of '{}'; missing: {}{}", folder,
                  shards.size(), count, part, fmt::join(names, ", "),
                  missing > static_cast<int64_t>(names.size()) ? ", ..." : ""));
}

}  // namespace

Result<ListedFolder> ListFolder(const std::string& folder_or_pattern,
                                FileSystem& files) {
  ListedFolder folder = {.path = folder_or_pattern, .names = {}};
  if (IsFilePattern(folder_or_pattern)) {
    folder.path = ParentDirectory(folder_or_pattern);
    folder.may_lack_shards = true;
    SLUICE_ASSIGN_OR_RETURN(folder.names,
                            NamesByPattern(folder_or_pattern, files));
  } else {
    SLUICE_ASSIGN_OR_RETURN(folder.names, files.List(folder.path));
  }
  return folder;
}

ShardSet ShardsAmong(const ListedFolder& folder, ShardKind kind,
                     std::string_view part) {
  const NamedSet named =
      ReadSet(folder, part,
              kind == ShardKind::kRecords ? ParseRecordShard : ParseTarShard);
  ShardSet set;
  if (!named.any) return set;
  if (!folder.may_lack_shards) RequireAll(folder.path, part, named);
  for (const auto& [number, name] : named.shards) {
    set.paths.push_back(JoinPath(folder.path, name));
  }
  set.count = CountOf(named);
  return set;
}

std::vector<std::string> FindShards(const std::string& folder,
                                    std::string_view part, FileSystem& files) {
  return ShardsAmong({folder, files.List(folder).ValueOrThrow()},
                     ShardKind::kRecords, part)
      .paths;
}

}  // namespace sluice
