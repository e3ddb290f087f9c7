#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "apps/sluice/data/data.h"
#include "apps/sluice/data/faults.h"
#include "apps/sluice/data/parallel.h"
#include "apps/sluice/data/records.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "engine/status.h"
#include "io/files/file.h"
#include "io/files/without_query.h"
#include "io/records/image_records.h"
#include "io/records/record_files.h"
#include "io/records/record_manifest.h"

namespace sluice::tool {
namespace {

// The classes of all files, whose folders must agree on them.
std::vector<std::string> ClassNamesOf(const std::vector<std::string>& paths) {
  if (paths.empty()) return {};
  const std::string first = ParentDirectory(paths[0]);
  const std::vector<std::string> names = ReadClassNames(first).ValueOrThrow();
  std::set<std::string> agreeing = {first};
  for (const std::string& path : paths) {
    const std::string folder = ParentDirectory(path);
    if (!agreeing.insert(folder).second) continue;
    if (ReadClassNames(folder).ValueOrThrow() == names) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' and '{}' have different names of classes: "
                            "check one after the other",
                            first, folder));
  }
  return names;
}

// The records of those files in which records can be found; the others are
// faults, before all records.
std::shared_ptr<const PictureFiles> Open(const std::vector<std::string>& paths,
                                         int threads, Faults& faults) {
  if (auto all = PictureFiles::Open(paths, threads); all.ok()) return *all;
  std::vector<std::string> good;
  for (const std::string& path : paths) {
    const Status status = PictureFiles::Open({path}, 1).status();
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
  return PictureFiles::Open(good, threads).ValueOrThrow();
}

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

// Of the parts that `sluice data make` wrote into a folder, no records may be
// missing. Files that are faults already are not told again.
void CheckPlans(const std::string& folder, int threads, Faults& faults) {
  for (const std::string_view part : kImageRecordParts) {
    const auto manifest = ReadManifest(folder, part).ValueOrThrow();
    if (!manifest) continue;
    const auto files = RecordFiles::Open(FindShards(folder, part), threads);
    if (!files.ok() || (*files)->size() == manifest->records) continue;
    faults.Add(
        -1, fmt::format("'{}' speaks of {} records, the files have {}; "
                        "run sluice data make again",
                        manifest->path, manifest->records, (*files)->size()));
  }
}

// A name of two classes, of the lines of labels.txt, from 1.
struct Repeated {
  std::string name;
  int64_t first, again;
};

std::vector<Repeated> RepeatedOf(const std::vector<std::string>& names) {
  std::vector<Repeated> repeated;
  std::map<std::string, int64_t> lines;
  int64_t line = 0;
  for (const std::string& name : names) {
    const auto [seen, is_new] = lines.emplace(name, ++line);
    if (!is_new) repeated.push_back({name, seen->second, line});
  }
  return repeated;
}

// It is no fault: two of ImageNet's names are of two classes each.
void PrintRepeated(const std::vector<Repeated>& repeated) {
  constexpr size_t kMost = 10;
  if (repeated.empty()) return;
  fmt::print("the same name of several classes:");
  for (size_t i = 0; i < std::min(kMost, repeated.size()); ++i) {
    const auto& [name, first, again] = repeated[i];
    fmt::print("{} '{}' in lines {} and {}", i == 0 ? "" : ",", Printable(name),
               first, again);
  }
  if (repeated.size() > kMost) {
    fmt::print(" and {} more", repeated.size() - kMost);
  }
  fmt::print("\n");
}

// Behind the last record, having none of their own.
void CheckNoneEmpty(const PictureFiles& files, Faults& faults) {
  for (const std::string& path : files.EmptyFiles()) {
    faults.Add(files.size(),
               fmt::format("'{}' holds no records", WithoutQuery(path)));
  }
}

// Labels from 0 must be those of the classes that have names.
void CheckLabels(const PictureFiles& files,
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
  const std::vector<std::string> names = ClassNamesOf(shards);
  const std::vector<Repeated> repeated = RepeatedOf(names);
  const auto classes = static_cast<int64_t>(names.size());
  Faults faults;
  for (const std::string& path : paths) CheckPlans(path, threads, faults);
  const auto files = Open(shards, threads, faults);
  CheckNoneEmpty(*files, faults);
  std::vector<std::optional<int64_t>> labels(files->size());
  {
    Progress progress(files->size(), "records");
    ThrowIfError(ForEach(files->size(), threads, [&](int64_t i) -> Status {
      const auto picture = files->Read(i);
      const Status status =
          picture.ok() ? files->Decode(i, *picture).status() : picture.status();
      if (status.ok()) {
        labels[i] = picture->label;
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
  if (json) {
    faults.PrintAsJson();
    Json line = {{"records", files->size()},
                 {"files", shards.size()},
                 {"bad", faults.count()}};
    if (range.least <= range.most) {
      line["least_label"] = range.least;
      line["most_label"] = range.most;
      line["label_offset"] = range.offset;
    }
    if (classes > 0) line["classes"] = classes;
    for (const auto& [name, first, again] : repeated) {
      line["repeated_names"].Add(
          {{"name", name}, {"lines", Json::Array({first, again})}});
    }
    PrintJson(line);
  } else {
    faults.Print(stdout);
    PrintRepeated(repeated);
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
