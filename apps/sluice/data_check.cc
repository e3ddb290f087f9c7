#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "apps/sluice/data.h"
#include "apps/sluice/data_parallel.h"
#include "apps/sluice/data_records.h"
#include "apps/sluice/json.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "io/file.h"
#include "io/image_records.h"
#include "io/record_files.h"

namespace sluice::tool {
namespace {

// The first faults, in the order of their places, and how many there are.
// Thread-safe.
class Faults {
 public:
  void Add(int64_t place, std::string message) {
    MutexLock lock(mutex_);
    ++count_;
    first_.emplace(place, std::move(message));
    if (first_.size() > kMost) first_.erase(std::prev(first_.end()));
  }
  void Print(bool json) const {
    MutexLock lock(mutex_);
    for (const auto& [place, message] : first_) {
      if (json) {
        PrintJson({{"bad", message}});
      } else {
        fmt::print("{}\n", message);
      }
    }
    const int64_t more = count_ - static_cast<int64_t>(first_.size());
    if (more > 0 && !json) fmt::print("and {} more\n", more);
  }
  int64_t count() const {
    MutexLock lock(mutex_);
    return count_;
  }

 private:
  static constexpr size_t kMost = 20;

  mutable Mutex mutex_;
  std::multimap<int64_t, std::string> first_ GUARDED_BY(mutex_);
  int64_t count_ GUARDED_BY(mutex_) = 0;
};

// The classes of all files, whose folders must agree on them.
std::vector<std::string> ClassNamesOf(const std::vector<std::string>& paths) {
  std::map<std::string, std::vector<std::string>> names;  // by folder
  for (const std::string& path : paths) {
    const std::string folder = ParentDirectory(path);
    if (names.contains(folder)) continue;
    names[folder] = ReadClassNames(folder).ValueOrThrow();
    const auto& [first, expected] = *names.begin();
    if (names[folder] != expected) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' and '{}' have different names of classes: "
                              "check one after the other",
                              first, folder));
    }
  }
  return names.empty() ? std::vector<std::string>() : names.begin()->second;
}

// The records of those files in which records can be found; the others are
// faults, before all records.
std::shared_ptr<const RecordFiles> Open(const std::vector<std::string>& paths,
                                        int threads, Faults& faults) {
  if (auto all = RecordFiles::Open(paths, threads); all.ok()) return *all;
  std::vector<std::string> good;
  for (const std::string& path : paths) {
    const Status status = RecordFiles::Open({path}).status();
    if (status.ok()) {
      good.push_back(path);
    } else if (status.code() != Code::kDataLoss &&
               status.code() != Code::kUnimplemented) {
      throw Error(status);  // there is no such file
    } else {
      faults.Add(-1, fmt::format("{}; none of this file's records were "
                                 "checked",
                                 status.message()));
    }
  }
  return RecordFiles::Open(good, threads).ValueOrThrow();
}

struct LabelRange {
  int64_t least = 0, most = -1;  // none
  int64_t offset = 0;            // LabelOffset

  std::string ToString() const {
    if (most < least) return "no labels";
    std::string text = fmt::format("labels {} to {}", least, most);
    if (offset != 0) text += " (resnet50: --label-offset 1)";
    return text;
  }
};

LabelRange RangeOf(const std::vector<std::optional<int64_t>>& labels,
                   int64_t classes) {
  LabelRange range;
  bool any = false;
  for (const auto& label : labels) {
    if (!label) continue;
    range.least = any ? std::min(range.least, *label) : *label;
    range.most = any ? std::max(range.most, *label) : *label;
    any = true;
  }
  if (any) range.offset = LabelOffset(range.least, range.most, classes);
  return range;
}

// Labels from 0 must be those of the classes that have names.
void CheckLabels(const RecordFiles& files,
                 const std::vector<std::optional<int64_t>>& labels,
                 int64_t classes, Faults& faults) {
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto& label = labels[i];
    if (!label || (*label >= 0 && *label < classes)) continue;
    faults.Add(i, fmt::format("{}: label {}, wanted 0 to {}: there are {} "
                              "names of classes",
                              files.PlaceOf(i), *label, classes - 1, classes));
  }
}

}  // namespace

bool CheckData(const std::vector<std::string>& paths, int threads, bool json) {
  std::vector<std::string> shards;
  for (const std::string& path : paths) {
    const std::vector<std::string> more = RecordPaths(path);
    shards.insert(shards.end(), more.begin(), more.end());
  }
  const auto classes = static_cast<int64_t>(ClassNamesOf(shards).size());
  Faults faults;
  const auto files = Open(shards, threads, faults);
  std::vector<std::optional<int64_t>> labels(files->size());
  {
    Progress progress(files->size(), "records");
    ThrowIfError(ForEach(files->size(), threads, [&](int64_t i) -> Status {
      std::string bytes;
      ImageRecord record;
      const Status status = ReadPicture(*files, i, &bytes, &record).status();
      if (status.ok()) {
        labels[i] = record.label;
      } else {
        faults.Add(i, status.message());
      }
      progress.Add(1);
      return {};
    }));
  }
  const LabelRange range = RangeOf(labels, classes);
  if (classes > 0 && range.offset == 0) {
    CheckLabels(*files, labels, classes, faults);
  }
  faults.Print(json);
  if (json) {
    Json line = {{"records", files->size()},
                 {"files", shards.size()},
                 {"bad", faults.count()}};
    if (range.least <= range.most) {
      line["least_label"] = range.least;
      line["most_label"] = range.most;
      line["label_offset"] = range.offset;
    }
    if (classes > 0) line["classes"] = classes;
    PrintJson(line);
  } else {
    fmt::print(
        "{} records in {} files, {} of {}, {}\n", files->size(), shards.size(),
        range.ToString(),
        classes > 0 ? fmt::format("{} classes", classes) : "unnamed classes",
        faults.count() == 0 ? "none bad"
                            : fmt::format("{} bad", faults.count()));
  }
  return faults.count() == 0;
}

}  // namespace sluice::tool
