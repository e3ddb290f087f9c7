#include "models/nn/class_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/parse_number.h"
#include "engine/status.h"
#include "graph/near_misses.h"

namespace sluice {
namespace {

bool IsWeight(double weight) {
  return weight >= 0 && std::isfinite(static_cast<float>(weight));
}

class Parser {
 public:
  Parser(int64_t classes, const std::vector<std::string>& names)
      : names_(names),
        weights_(static_cast<size_t>(classes), 1.0),
        given_(static_cast<size_t>(classes), false) {}

  void Entry(std::string_view entry) {
    entry_ = entry;
    const size_t equals = entry.rfind('=');
    if (equals == std::string_view::npos) {
      Fail("wanted CLASS=WEIGHT, such as 2=5 or cat=0.5");
    }
    const size_t at = Class(entry.substr(0, equals));
    if (given_[at]) Fail(fmt::format("class {} has a weight already", at));
    given_[at] = true;
    const auto weight = ParseWhole<double>(entry.substr(equals + 1));
    if (!weight || !IsWeight(*weight)) {
      Fail(
          "wanted a weight that is a number, not negative and not beyond "
          "float32");
    }
    weights_[at] = *weight;
  }

  const std::vector<double>& weights() const { return weights_; }

 private:
  size_t Class(std::string_view text) const {
    const auto named = std::find(names_.begin(), names_.end(), text);
    if (named != names_.end()) {
      if (std::find(named + 1, names_.end(), text) != names_.end()) {
        Fail(
            fmt::format("several classes are named '{}'; give a number", text));
      }
      return static_cast<size_t>(named - names_.begin());
    }
    const auto number = ParseWhole<int64_t>(text);
    if (!number) {
      Fail(fmt::format("there is no class '{}'{}", text,
                       NearMisses(text, {names_.begin(), names_.end()})));
    }
    const auto last = static_cast<int64_t>(weights_.size()) - 1;
    if (*number < 0 || *number > last) {
      Fail(fmt::format("there is no class {}, only 0 to {}", *number, last));
    }
    return static_cast<size_t>(*number);
  }

  [[noreturn]] void Fail(std::string_view why) const {
    throw Error(Code::kInvalidArgument,
                fmt::format("class weights: '{}': {}", entry_, why));
  }

  const std::vector<std::string>& names_;
  std::vector<double> weights_;
  std::vector<bool> given_;
  std::string_view entry_;
};

}  // namespace

std::vector<double> BalancedWeights(std::span<const int64_t> counts) {
  double examples = 0, present = 0;
  for (const int64_t count : counts) {
    if (count < 0) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("class weights: wanted counts of examples, got "
                              "{}",
                              count));
    }
    examples += static_cast<double>(count);
    present += count > 0 ? 1 : 0;
  }
  std::vector<double> weights;
  weights.reserve(counts.size());
  for (const int64_t count : counts) {
    weights.push_back(
        count == 0 ? 1 : examples / (present * static_cast<double>(count)));
  }
  return weights;
}

std::vector<double> ParseClassWeights(
    std::string_view text, int64_t classes,
    const std::vector<std::string>& class_names) {
  const auto names = static_cast<int64_t>(class_names.size());
  if (classes < 1 || names > classes) {
    throw Error(Code::kInvalidArgument,
                fmt::format("class weights: wanted classes and at most a name "
                            "for each, got {} classes and {} names",
                            classes, names));
  }
  Parser parser(classes, class_names);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parser.Entry(text.substr(begin, end - begin));
    begin = end + 1;
  }
  CheckClassWeights(parser.weights());
  return parser.weights();
}

void CheckClassWeights(std::span<const double> weights) {
  const auto wrong = std::find_if_not(weights.begin(), weights.end(), IsWeight);
  if (wrong != weights.end()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("class weights: wanted numbers that are not "
                            "negative and not beyond float32, class {} has {}",
                            wrong - weights.begin(), *wrong));
  }
  if (std::all_of(weights.begin(), weights.end(), [](double w) {
        return w < std::numeric_limits<float>::min();
      })) {
    throw Error(Code::kInvalidArgument,
                "class weights: no class has a weight that is not 0, to "
                "float32");
  }
}

}  // namespace sluice
