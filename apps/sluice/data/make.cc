#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "apps/say_line.h"
#include "apps/sluice/data/data.h"
#include "apps/sluice/data/faults.h"
#include "apps/sluice/data/file_tree.h"
#include "apps/sluice/data/parallel.h"
#include "apps/sluice/data/plan.h"
#include "apps/sluice/data/records.h"
#include "apps/sluice/json.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/images/jpeg.h"
#include "io/records/image_records.h"
#include "io/records/record_writer.h"
#include "io/sources/image_folder.h"
#include "io/sources/image_list.h"

namespace sluice::tool {
namespace {

constexpr const char* kClassNames = "labels.txt";

Status WriteShard(const DataPlan& plan, int64_t shard, Progress& progress) {
  SLUICE_ASSIGN_OR_RETURN(const auto file,
                          RecordWriter::Create(plan.PathOf(shard)));
  for (int64_t i = plan.Begin(shard); i < plan.Begin(shard + 1); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const std::string record, plan.Record(i));
    SLUICE_RETURN_IF_ERROR(file->Write(record));
    progress.Add(1);
  }
  return file->Close();
}

// A folder of records among those of the classes is one that has no images,
// which the next run refuses.
void RequireNoClass(const MakeDataOptions& options) {
  const auto within = PathWithin(options.from, options.out);
  if (!within || within->empty()) return;
  const std::string name = within->substr(0, within->find('/'));
  if (name.empty() || !MayBeClass(name)) return;
  if (!IsFolder(options.from).ValueOrThrow()) return;  // which is said later
  const std::string table = JoinPath(options.from, kLabelsFile);
  if (FileSystem::Default().Exists(table).ValueOrThrow()) return;
  if (!ImagesIn(JoinPath(options.from, name)).empty()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("'{}' is in '{}', where '{}' would be taken for a "
                          "class: choose another folder for the records",
                          options.out, options.from, name));
}

std::unique_ptr<FileLock> Lock(const std::string& out) {
  auto lock = FileSystem::Default().Lock(
      JoinPath(out, kDataLock), fmt::format("process {}", getpid()),
      [](std::string_view line) { SayLine(line); });
  if (lock.status().code() == Code::kFailedPrecondition) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("'{}' is being written by another run ({}); wait "
                            "for its end or choose another folder",
                            out, lock.status().message()));
  }
  std::unique_ptr<FileLock> held = std::move(lock).ValueOrThrow();
  if (!held->warning().empty()) SayLine(held->warning());
  return held;
}

// What a run that was killed has left. Call it under the lock.
void RemoveTemporaries(const std::string& out) {
  for (const std::string& name :
       FileSystem::Default().List(out).ValueOrThrow()) {
    const bool ours = std::any_of(
        kImageRecordParts.begin(), kImageRecordParts.end(),
        [&](std::string_view part) { return name.starts_with(part); });
    if ((ours || name.starts_with(kClassNames)) && IsTemporaryName(name)) {
      ThrowIfError(FileSystem::Default().Remove(JoinPath(out, name)));
    }
  }
}

// Those of labels.txt; none where there is none yet, or no folder.
std::vector<std::string> NamesIn(const std::string& out) {
  if (!FileSystem::Default().Exists(out).ValueOrThrow()) return {};
  return ReadClassNames(out).ValueOrThrow();
}

// The pictures, their classes numbered as in OUT already.
ImageList ListNumbered(const MakeDataOptions& options) {
  const std::vector<std::string> names = NamesIn(options.out);
  const std::string& from = options.from;
  const auto list = [&] {
    return IsImageTable(from) ? ListImagesOfTable(from, names)
                              : ListImages(from, names);
  };
  if (names.empty()) return list();
  try {
    return list();
  } catch (const Error& error) {
    const Code code = error.code();
    if (code != Code::kInvalidArgument && code != Code::kOutOfRange) throw;
    const std::string file = JoinPath(options.out, kClassNames);
    const Result<bool> named = FileSystem::Default().Exists(file);
    throw Error(
        code,
        fmt::format("{}; the classes of training are those of '{}': "
                    "choose another folder for the records, or remove "
                    "that file if no records there need it",
                    error.what(), named.ok() && *named ? file : options.out));
  }
}

// Another part's classes have names of labels.txt, or numbers alone.
void CheckOtherParts(const MakeDataOptions& options) {
  for (const std::string_view part : kImageRecordParts) {
    const std::string plan = JoinPath(options.out, std::string(part) + ".json");
    if (part == options.part) continue;
    if (!FileSystem::Default().Exists(plan).ValueOrThrow()) continue;
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("the classes of '{}' have names, those of '{}' have "
                    "numbers alone; choose another folder, or write their "
                    "names into '{}'",
                    options.from, plan, JoinPath(options.out, kClassNames)));
  }
}

// That of labels.txt. An error where a name is no line.
std::string ClassNamesText(const ImageList& list) {
  std::string text;
  for (const std::string& name : list.class_names) {
    const size_t end = name.find_first_of("\r\n");
    if (end != std::string::npos) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}': a line ends within the name of the class "
                              "'{}'; rename it",
                              list.directory, name.substr(0, end)));
    }
    text += name + "\n";
  }
  return text;
}

void WriteClassNames(const MakeDataOptions& options, const ImageList& list) {
  const std::vector<std::string>& names = list.class_names;
  const std::vector<std::string> there = NamesIn(options.out);
  if (there == names) return;
  if (!there.empty()) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("'{}' was changed meanwhile; start this again",
                            JoinPath(options.out, kClassNames)));
  }
  CheckOtherParts(options);
  ThrowIfError(FileSystem::Default().WriteAtomically(
      JoinPath(options.out, kClassNames), ClassNamesText(list)));
}

// Throws Error in a build that cannot write such pictures.
void RequireJpeg() {
  const Tensor pixel = Tensor::Full(DType::kUInt8, {1, 1, 3}, 0);
  ThrowIfError(EncodeJpeg(pixel, 95).status());
}

std::vector<int64_t> MissingShards(const DataPlan& plan) {
  std::vector<int64_t> missing;
  for (int64_t s = 0; s < plan.shards(); ++s) {
    if (!plan.IsWhole(s)) missing.push_back(s);
  }
  return missing;
}

// Of the pictures that are to be written, names those that cannot be.
void CheckPictures(const DataPlan& plan, int threads) {
  std::vector<int64_t> records;
  for (const int64_t s : MissingShards(plan)) {
    for (int64_t i = plan.Begin(s); i < plan.Begin(s + 1); ++i) {
      records.push_back(i);
    }
  }
  const auto n = static_cast<int64_t>(records.size());
  Faults faults;
  Progress progress(n, "pictures looked at");
  ThrowIfError(ForEach(n, threads, [&](int64_t i) -> Status {
    Status status = plan.CheckBeginning(records[i]);
    if (status.code() == Code::kUnimplemented) return status;  // none can be
    if (!status.ok()) {
      faults.Add(plan.PictureOf(records[i]), status.message());
    }
    progress.Add(1);
    return {};
  }));
  if (faults.count() == 0) return;
  faults.Print(stderr);
  throw Error(Code::kInvalidArgument,
              fmt::format("{} of {} pictures in '{}' are bad, see above; mend "
                          "or remove them: nothing was written",
                          faults.count(), n, plan.list().directory));
}

// Writes the shards that are not there and returns how many are.
int64_t WriteMissing(const DataPlan& plan, int threads) {
  const std::vector<int64_t> missing = MissingShards(plan);
  int64_t pictures = 0;
  for (const int64_t s : missing) pictures += plan.Begin(s + 1) - plan.Begin(s);
  const auto n = static_cast<int64_t>(missing.size());
  Progress progress(pictures, "pictures");
  ThrowIfError(ForEach(n, threads, [&](int64_t i) {
    return WriteShard(plan, missing[i], progress);
  }));
  return plan.shards() - n;
}

// Of labels without names, which need not begin at 0, those there are.
LabelRange LabelsOf(const ImageList& list) {
  const auto [least, most] =
      std::minmax_element(list.labels.begin(), list.labels.end());
  return {*least, *most, LabelOffset(*least, *most, 0)};
}

void PrintMade(const MakeDataOptions& options, const DataPlan& plan,
               int64_t kept) {
  size_t bytes = 0;
  for (int64_t s = 0; s < plan.shards(); ++s) {
    bytes += FileSystem::Default().Size(plan.PathOf(s)).ValueOrThrow();
  }
  const ImageList& list = plan.list();
  const LabelRange labels = LabelsOf(list);
  if (options.json) {
    Json line = {{"part", options.part},
                 {"records", plan.records()},
                 {"bytes", bytes},
                 {"shards", plan.shards()},
                 {"kept", kept},
                 {"least_label", labels.least},
                 {"most_label", labels.most}};
    if (!list.class_names.empty()) line["classes"] = list.classes;
    if (options.resize > 0) line["resize"] = options.resize;
    PrintJson(line);
    return;
  }
  fmt::print("{}: {} records of {}, {} bytes in {} shards{}\n",
             JoinPath(options.out, options.part), plan.records(),
             list.class_names.empty() ? labels.ToString()
                                      : fmt::format("{} classes", list.classes),
             bytes, plan.shards(),
             kept == 0 ? "" : fmt::format(", {} of them made before", kept));
}

}  // namespace

void MakeData(const MakeDataOptions& options) {
  RequireNoClass(options);
  ImageList list = ListNumbered(options);
  if (!list.heading.empty()) {
    SayLine(fmt::format("'{}' is the heading of the table", list.heading));
  }
  DataPlan plan(std::move(list), JoinPath(options.out, options.part),
                options.resize);
  // What can be refused is refused before OUT is touched.
  plan.Cut(options.shards);
  (void)ClassNamesText(plan.list());
  if (options.resize > 0) RequireJpeg();
  CheckPictures(plan, options.threads);

  ThrowIfError(FileSystem::Default().MakeDirectories(options.out));
  const auto lock = Lock(options.out);
  RemoveTemporaries(options.out);
  plan.Cut(options.shards);  // another run may have written meanwhile
  WriteClassNames(options, plan.list());
  plan.Save();
  PrintMade(options, plan, WriteMissing(plan, options.threads));
}

}  // namespace sluice::tool
