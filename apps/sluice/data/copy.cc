#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "apps/sluice/data/data.h"
#include "apps/sluice/data/faults.h"
#include "apps/sluice/data/file_copy.h"
#include "apps/sluice/data/file_tree.h"
#include "apps/sluice/data/parallel.h"
#include "apps/sluice/data/plan.h"
#include "apps/sluice/data/temporary_file.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "engine/status.h"
#include "io/checkpoints/checkpoint.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"
#include "models/train/export.h"

namespace sluice::tool {
namespace {

enum class State : uint8_t { kBad, kMissing, kThere, kCopied };

// What is to be copied where, and how far that is. Place i is that of file i.
struct Job {
  std::string from, to;
  FileTree tree;
  std::vector<uint64_t> sizes;  // bytes, of each file
  std::vector<State> states;    // of each file

  int64_t files() const { return static_cast<int64_t>(tree.files.size()); }
  std::string From(int64_t i) const { return PathBelow(from, tree.files[i]); }
  std::string To(int64_t i) const { return PathBelow(to, tree.files[i]); }
};

struct Counted {
  int64_t files = 0;
  uint64_t bytes = 0;
};

Counted CountOf(const Job& job, State state) {
  Counted counted;
  for (int64_t i = 0; i < job.files(); ++i) {
    if (job.states[i] != state) continue;
    ++counted.files;
    counted.bytes += job.sizes[i];
  }
  return counted;
}

// A copy into itself would grow with every run, or write what it reads.
void RequireApart(const std::string& from, const std::string& to) {
  if (!IsInside(from, to) && !IsInside(to, from)) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("cannot copy '{}' to '{}': one is in the other, or "
                          "they are the same",
                          WithoutQuery(from), WithoutQuery(to)));
}

// Where there is none a store refuses each file, once all of it has been sent.
// What is not there in a bucket it lists as empty.
void RequireBucket(const std::string& to) {
  if (SchemeOf(to).empty()) return;
  const Status listed = FileSystem::Default().List(to).status();
  if (listed.code() == Code::kNotFound) throw Error(listed);
}

// A folder's files go to TO itself; a file goes into TO where that is a folder.
// Also finds out whether TO's file system can be used at all.
std::string TargetOf(const CopyDataOptions& options, bool is_file) {
  std::string to = options.to;
  const PathKind there = KindOf(to).ValueOrThrow();
  if (is_file && (to.ends_with('/') || there == PathKind::kFolder)) {
    to = JoinPath(to, FileNameOf(options.from));
  } else if (!is_file && there == PathKind::kFile) {
    throw Error(Code::kInvalidArgument,
                fmt::format("cannot copy the folder '{}' to '{}', which is a "
                            "file",
                            options.from, WithoutQuery(to)));
  }
  while (to.size() > 1 && to.ends_with('/')) to.pop_back();
  RequireBucket(to);
  return to;
}

// They say who writes there, which is nobody where they are copied to; a store
// would take what a disk has of them for a lock that is held.
bool IsLock(const std::string& relative) {
  const std::string name = relative.substr(relative.rfind('/') + 1);
  return name == CheckpointManager::kLockName || name == kDataLock ||
         name == kExportLock;
}

Job JobOf(const CopyDataOptions& options, Faults& faults) {
  const PathKind kind = KindOf(options.from).ValueOrThrow();
  if (kind == PathKind::kNone) {
    throw Error(Code::kNotFound, fmt::format("'{}': no such file or folder",
                                             WithoutQuery(options.from)));
  }
  Job job;
  job.from = options.from;
  job.to = TargetOf(options, kind == PathKind::kFile);
  RequireApart(job.from, job.to);
  job.tree = ListTree(job.from, options.threads, faults);
  std::erase_if(job.tree.files, IsLock);
  job.sizes.resize(job.files());
  job.states.resize(job.files());
  return job;
}

// Whether it was written since, as far as that is known.
bool IsNewer(const ReadableFile& file, const ReadableFile& copy) {
  const auto written = file.written(), copied = copy.written();
  return written && copied && *written > *copied;
}

// Whether the copy is one of the file, which has been opened. With `check` both
// are read, else it has the same size and is not older.
Result<bool> IsThere(const std::string& from, const ReadableFile& file,
                     const std::string& to, bool check) {
  const auto there = FileSystem::Default().OpenRead(to);
  if (there.status().code() == Code::kNotFound) return false;
  if (!there.ok()) return there.status();
  if ((*there)->size() != file.size()) return false;
  if (!check) return !IsNewer(file, **there);
  SLUICE_ASSIGN_OR_RETURN(const Checksums wanted, ChecksumsOf(from));
  SLUICE_ASSIGN_OR_RETURN(const Checksums got, ChecksumsOf(to));
  return wanted == got;
}

void Look(const CopyDataOptions& options, Job& job, Faults& faults) {
  Progress progress(job.files(), "files looked at");
  const auto look = [&](int64_t i) -> Status {
    SLUICE_ASSIGN_OR_RETURN(const auto from,
                            FileSystem::Default().OpenRead(job.From(i)));
    job.sizes[i] = from->size();
    SLUICE_ASSIGN_OR_RETURN(
        const bool there,
        IsThere(job.From(i), *from, job.To(i), options.check));
    job.states[i] = there ? State::kThere : State::kMissing;
    return {};
  };
  ThrowIfError(ForEach(job.files(), options.threads, [&](int64_t i) -> Status {
    const Status status = look(i);
    if (!status.ok()) faults.Add(i, status.message());
    progress.Add(1);
    return {};
  }));
}

// Makes the folders, and removes from them what killed runs have left.
void Prepare(const Job& job, Faults& faults) {
  std::map<std::string, std::set<std::string>> names;  // by folder
  for (const std::string& folder : job.tree.folders) {
    names[PathBelow(job.to, folder)];
  }
  for (int64_t i = 0; i < job.files(); ++i) {
    const std::string to = job.To(i);
    names[ParentDirectory(to)].insert(to.substr(to.rfind('/') + 1));
  }
  for (const auto& [folder, inside] : names) {
    Status status = FileSystem::Default().MakeDirectories(folder);
    if (status.ok() && SchemeOf(folder).empty()) {
      status = RemoveAbandoned(folder, inside);
    }
    if (!status.ok()) faults.Add(-1, status.message());
  }
}

void Copy(const CopyDataOptions& options, Job& job, Faults& faults) {
  std::vector<int64_t> missing;
  std::set<std::string> folders;
  for (int64_t i = 0; i < job.files(); ++i) {
    if (job.states[i] != State::kMissing) continue;
    missing.push_back(i);
    folders.insert(ParentDirectory(job.To(i)));
  }
  const auto bytes = static_cast<int64_t>(CountOf(job, State::kMissing).bytes);
  Progress progress(bytes, "bytes");
  const auto n = static_cast<int64_t>(missing.size());
  ThrowIfError(ForEach(n, options.threads, [&](int64_t m) -> Status {
    const int64_t i = missing[m];
    const Status status = CopyFile(job.From(i), job.To(i), options.check,
                                   [&](int64_t more) { progress.Add(more); });
    job.states[i] = status.ok() ? State::kCopied : State::kBad;
    if (!status.ok()) faults.Add(i, status.message());
    return {};
  }));
  for (const std::string& folder : folders) {
    if (!SchemeOf(folder).empty()) continue;
    const Status status = FileSystem::Default().SyncDirectory(folder);
    if (!status.ok()) faults.Add(-1, status.message());
  }
}

void PrintPlan(const Job& job, bool json) {
  for (int64_t i = 0; i < job.files(); ++i) {
    if (job.states[i] != State::kMissing) continue;
    if (json) {
      PrintJson(
          {{"from", job.From(i)}, {"to", job.To(i)}, {"bytes", job.sizes[i]}});
    } else {
      fmt::print("would copy '{}', {} bytes\n",
                 Printable(WithoutQuery(job.From(i))), job.sizes[i]);
    }
  }
}

void PrintResult(const CopyDataOptions& options, const Job& job,
                 const Faults& faults) {
  const Counted copied =
      CountOf(job, options.dry_run ? State::kMissing : State::kCopied);
  const Counted there = CountOf(job, State::kThere);
  if (options.json) {
    faults.PrintAsJson();
    PrintJson({{"files", job.files()},
               {options.dry_run ? "to_copy" : "copied", copied.files},
               {"bytes", copied.bytes},
               {"there", there.files},
               {"bad", faults.count()}});
    return;
  }
  faults.Print(stderr);
  fmt::print(
      "'{}': {} files, {} {} of {} bytes, {} there before, {}\n",
      Printable(job.to), job.files(), options.dry_run ? "to copy" : "copied",
      copied.files, copied.bytes, there.files,
      faults.count() == 0 ? "none bad" : fmt::format("{} bad", faults.count()));
}

}  // namespace

bool CopyData(const CopyDataOptions& options) {
  Faults faults;
  Job job = JobOf(options, faults);
  Look(options, job, faults);
  if (options.dry_run) {
    PrintPlan(job, options.json);
  } else {
    Prepare(job, faults);
    Copy(options, job, faults);
  }
  PrintResult(options, job, faults);
  return faults.count() == 0;
}

}  // namespace sluice::tool
