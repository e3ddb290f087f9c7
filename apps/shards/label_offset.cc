#include "apps/shards/label_offset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "apps/shards/note_once.h"
#include "engine/parse_number.h"
#include "engine/text/thousands.h"
#include "io/files/open_files.h"
#include "io/pipeline/bad_examples.h"

namespace sluice::shards {
namespace {

// So many are looked at whatever they are, and so many at most.
constexpr int64_t kAlways = 1000, kMost = 10'000;

constexpr char kFlag[] = "label-offset";
constexpr std::string_view kDescribed = " labels from ";

constexpr int64_t kLargest = 1'000'000'000;

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
      const Status& status = read[i].status();
      return status.ok() || BadExamples::IsOne(status) ? Status() : status;
    }));
    for (int64_t i = 0; i < n; ++i) {
      const Result<int64_t>& label = read[i];
      if (!label.ok()) continue;
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

// Throws Error where labels are seen that the training had no such ones of: one
// of the two has not been numbered as it was meant.
void RequireAsTrained(const Seen& seen, int64_t offset, int64_t classes,
                      const RunContext& run) {
  const auto training = LabelOffsetOfTraining(run);
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
  const auto training = LabelOffsetOfTraining(run);
  if (training && !renumbered) {
    if (seen.labels > 0) {
      NoteOnce(fmt::format(
          "labels are taken to begin at {}, as in the training", *training));
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

// As --label-offset auto.
int64_t Find(const RunContext& run, const LabelsOfPictures& labels,
             int64_t classes, bool renumbered,
             const std::function<LabelsOfPictures()>& others) {
  Seen seen;
  Look(labels, classes, &seen);
  if (!seen.tells()) Look(others(), classes, &seen);
  RequireOne(run, seen, classes);
  if (!seen.tells()) return Assumed(run, seen, classes, renumbered);
  const int64_t offset = seen.zero ? 0 : 1;
  if (!renumbered) RequireAsTrained(seen, offset, classes, run);
  NoteOnce(
      fmt::format("labels begin at {}: {} is the first class", offset, offset));
  return offset;
}

}  // namespace

void CheckLabelOffset(const RunContext& run, bool of_shards, const char* data) {
  const std::string& flag = run.flag(kFlag);
  if (flag == "auto") return;
  const auto number = ParseWhole<int64_t>(flag);
  if (!number || *number < -kLargest || *number > kLargest) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--{}: wanted auto or a whole number, got '{}'",
                            kFlag, flag));
  }
  if (*number != 0 && !of_shards) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--{} is for {} with a folder of records or tar "
                            "shards",
                            kFlag, data));
  }
}

int64_t LabelOffset(const RunContext& run, const LabelsOfPictures& labels,
                    int64_t classes, bool renumbered,
                    const std::function<LabelsOfPictures()>& others) {
  if (const auto given = ParseWhole<int64_t>(run.flag(kFlag))) {
    NoteOnce(fmt::format("labels begin at {}, as --{} says", *given, kFlag));
    return *given;
  }
  const int64_t offset = Find(run, labels, classes, renumbered, others);
  if (run.training()) (*run.found_flags)[kFlag] = std::to_string(offset);
  return offset;
}

std::optional<int64_t> LabelOffsetOfTraining(const RunContext& run) {
  const std::string_view text = run.trained_on;
  if (text.find("records-") == text.npos && text.find("tars-") == text.npos) {
    return std::nullopt;
  }
  const size_t at = text.find(kDescribed);
  if (at == text.npos) return 0;
  const std::string_view rest = text.substr(at + kDescribed.size());
  return ParseWhole<int64_t>(
      rest.substr(0, rest.find_first_not_of("-0123456789")));
}

std::string LabelFlags(const RunContext& run) {
  return run.flags.contains("classes")
             ? "--classes says how many there are, --label-offset which label "
               "the first has"
             : "--label-offset says which label the first has";
}

std::string DescribeLabelOffset(int64_t offset) {
  return offset == 0 ? "" : fmt::format("{}{}", kDescribed, offset);
}

}  // namespace sluice::shards
