#include "apps/shards/label_offset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "apps/shards/note_once.h"
#include "engine/thousands.h"
#include "io/files/open_files.h"
#include "io/pipeline/bad_examples.h"

namespace sluice::shards {
namespace {

// So many are looked at whatever they are, and so many at most.
constexpr int64_t kAlways = 1000, kMost = 10'000;

// Number `i` of an order of [0, size) in which any first ones lie evenly among
// all: steps of the golden section round a circle.
int64_t Spread(int64_t i, int64_t size) {
  auto stride = std::max<int64_t>(
      static_cast<int64_t>(0.6180339887498949 * static_cast<double>(size)), 1);
  while (std::gcd(stride, size) != 1) ++stride;
  return i * stride % size;
}

// Pictures whose label only one of the two numberings has.
struct Seen {
  int64_t labels = 0;  // looked at
  std::optional<std::string> zero, classes;

  bool tells() const { return zero || classes; }
};

// Adds what is among these. Throws Error for a label that may be there later.
// Several are read at a time, since a server may be far away.
void Look(const LabelsOfPictures& labels, int64_t classes, Seen* seen) {
  constexpr int kReads = 16;
  for (int64_t begin = 0; begin < std::min(labels.size, kMost);
       begin += kAlways) {
    if (begin > 0 && seen->tells()) break;
    const int64_t n = std::min(kAlways, labels.size - begin);
    std::vector<Result<int64_t>> read(n, int64_t{0});
    ThrowIfError(ForEachFile(n, kReads, [&](size_t i) -> Status {
      const auto at = begin + static_cast<int64_t>(i);
      read[i] = labels.label(Spread(at, labels.size));
      return {};
    }));
    for (int64_t i = 0; i < n; ++i) {
      const Result<int64_t>& label = read[i];
      if (!label.ok()) {
        if (!BadExamples::IsOne(label.status())) ThrowIfError(label.status());
        continue;
      }
      ++seen->labels;
      const int64_t number = Spread(begin + i, labels.size);
      if (*label == 0) seen->zero = labels.place(number);
      if (*label == classes) seen->classes = labels.place(number);
    }
  }
}

// Throws Error where there is a picture of each numbering.
void RequireOne(const RunContext& run, const Seen& seen, int64_t classes) {
  if (!seen.zero || !seen.classes) return;
  throw Error(
      Code::kInvalidArgument,
      fmt::format("{}: label 0, and {}: label {}, which cannot both be of {} "
                  "classes; {}",
                  *seen.zero, *seen.classes, classes, classes,
                  LabelFlags(run)));
}

// What the training began at, where that was of shards.
std::optional<int64_t> OfTraining(const RunContext& run) {
  const auto has = [&](const std::string& text) {
    return run.trained_on.find(text) != std::string::npos;
  };
  if (!has("records-") && !has("tars-")) return std::nullopt;
  return has(DescribeLabelOffset(1)) ? 1 : 0;
}

// Throws Error where labels are seen that the training had no such ones of: one
// of the two has not been numbered as it was meant.
void RequireAsTrained(const Seen& seen, int64_t offset, int64_t classes,
                      const RunContext& run) {
  const auto training = OfTraining(run);
  if (!training || *training == offset) return;
  throw Error(
      Code::kInvalidArgument,
      fmt::format("{}: label {}, so that labels begin at {} here, but those of "
                  "the training were taken to begin at {}; give --label-offset "
                  "here, and there if that was wrong",
                  offset == 0 ? *seen.zero : *seen.classes,
                  offset == 0 ? 0 : classes, offset, *training));
}

// Where the labels do not tell.
int64_t Assumed(const RunContext& run, const Seen& seen, int64_t classes,
                bool renumbered) {
  const auto training = OfTraining(run);
  if (training && !renumbered) {
    if (*training == 1 && seen.labels > 0) {
      NoteOnce("labels are taken to begin at 1, as in the training");
    }
    return *training;
  }
  if (seen.labels > 0) {
    NoteOnce(
        fmt::format("neither 0 nor {} is among {} labels, so that they "
                    "are taken to begin at 0; --label-offset 1 if not",
                    classes, WithThousands(seen.labels)));
  }
  return 0;
}

}  // namespace

int64_t LabelOffset(const RunContext& run, const LabelsOfPictures& labels,
                    int64_t classes, bool renumbered,
                    const std::function<LabelsOfPictures()>& others) {
  const std::string& flag = run.flag("label-offset");
  if (flag != "auto") return flag == "1" ? 1 : 0;
  Seen seen;
  Look(labels, classes, &seen);
  if (!seen.tells()) Look(others(), classes, &seen);
  RequireOne(run, seen, classes);
  if (!seen.tells()) return Assumed(run, seen, classes, renumbered);
  const int64_t offset = seen.zero ? 0 : 1;
  if (!renumbered) RequireAsTrained(seen, offset, classes, run);
  if (offset == 1) NoteOnce("labels begin at 1: 1 is the first class");
  return offset;
}

std::string LabelFlags(const RunContext& run) {
  return run.flags.contains("classes")
             ? "--classes says how many there are, --label-offset which label "
               "the first has"
             : "--label-offset says which label the first has";
}

std::string DescribeLabelOffset(int64_t offset) {
  return offset == 0 ? "" : fmt::format(" labels from {}", offset);
}

}  // namespace sluice::shards
