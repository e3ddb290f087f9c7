// The schedule string; schedule.h has the grammar.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "graph/ops/elementwise.h"
#include "models/optim/hyperparameters.h"
#include "models/optim/schedule.h"

namespace sluice {
namespace {

struct Segment {
  double begin, end;  // epochs
  double from, to;
  bool exponential;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Segment> Parse() {
    const double first = Number("an epoch or a rate");
    if (AtEnd()) return {{0, 1, CheckRate(first, 0), first, false}};
    std::vector<Segment> segments;
    double epoch = first;
    size_t at = 0;
    while (true) {
      segments.push_back(
          Rest(segments.empty() ? 0 : segments.back().end, epoch, at));
      if (AtEnd()) return segments;
      Expect(",", "',' or the end");
      at = at_;
      epoch = Number("an epoch");
    }
  }

 private:
  // What follows a segment's epoch, which was read at `at`.
  Segment Rest(double begin, double end, size_t at) {
    if (!(end > begin)) {
      Fail(at, begin == 0 ? "a positive epoch"
                          : fmt::format("an epoch after {}", begin));
    }
    Expect(":", "':'");
    Segment segment = {begin, end, Rate(), 0, false};
    segment.to = segment.from;
    segment.exponential = Skip("=>");
    if (!segment.exponential && !Skip("->")) return segment;
    const size_t to_at = at_;
    segment.to = Rate();
    if (segment.exponential && !(segment.from > 0 && segment.to > 0)) {
      Fail(to_at, "positive rates on both sides of '=>'");
    }
    return segment;
  }

  double Rate() {
    const size_t at = at_;
    return CheckRate(Number("a learning rate"), at);
  }

  double CheckRate(double rate, size_t at) const {
    if (!IsFactor(rate)) {
      Fail(at, "a finite learning rate that is not negative");
    }
    return rate;
  }

  double Number(std::string_view wanted) {
    SkipSpaces();
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] =
        std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value)) Fail(at_, wanted);
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  bool Skip(std::string_view token) {
    SkipSpaces();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void Expect(std::string_view token, std::string_view wanted) {
    if (!Skip(token)) Fail(at_, wanted);
  }

  void SkipSpaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool AtEnd() {
    SkipSpaces();
    return at_ == text_.size();
  }

  [[noreturn]] void Fail(size_t at, std::string_view wanted) const {
    const std::string_view rest = text_.substr(at, 12);
    throw Error(
        Code::kInvalidArgument,
        fmt::format("learning rate '{}': character {}: wanted {}, got {}; a "
                    "schedule looks like 5:0.1->0.4,15:0.4,20:0.04",
                    text_, at + 1, wanted,
                    rest.empty() ? "the end" : fmt::format("'{}'", rest)));
  }

  std::string_view text_;
  size_t at_ = 0;
};

// The rate at `epoch`, which lies in the segment.
Output Within(const Segment& segment, const Output& epoch) {
  if (segment.from == segment.to) {
    return epoch.graph().Constant(segment.from, DType::kFloat64);
  }
  const Output done = (epoch - segment.begin) / (segment.end - segment.begin);
  if (!segment.exponential) {
    return segment.from + (segment.to - segment.from) * done;
  }
  // Elsewhere it is not asked for, but is not to overflow: FindNonFinite would
  // blame it.
  return segment.from *
         Exp(std::log(segment.to / segment.from) * Clip(done, 0, 1));
}

}  // namespace

LearningRate Schedule(std::string_view text, double steps_per_epoch) {
  const std::vector<Segment> segments = Parser(text).Parse();
  if (!(steps_per_epoch > 0)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("learning rate '{}': wanted a positive number of "
                            "steps per epoch, got {}",
                            text, steps_per_epoch));
  }
  return {std::string(text), [=](const Output& step) {
            Output rate =
                step.graph().Constant(segments.back().to, DType::kFloat64);
            const Output epoch = Cast(step, DType::kFloat64) / steps_per_epoch;
            for (size_t i = segments.size(); i-- > 0;) {
              rate = Select(Less(epoch, segments[i].end),
                            Within(segments[i], epoch), rate);
            }
            return rate;
          }};
}

LearningRate Schedule(std::string_view text, const RunContext& run) {
  if (!run.knows_epochs()) {
    const std::vector<Segment> segments = Parser(text).Parse();
    if (segments.size() == 1 && segments[0].from == segments[0].to) {
      return Schedule(text, 1.0);
    }
    throw Error(
        Code::kInvalidArgument,
        fmt::format("learning rate '{}': how many steps an epoch has is "
                    "not known, since nothing says how many examples there "
                    "are; give one rate, or the number of examples "
                    "(Dataset::ExpectSize, or the manifest of records)",
                    text));
  }
  return Schedule(text, run.steps_per_epoch);
}

}  // namespace sluice
