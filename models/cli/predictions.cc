#include "models/cli/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/text/json.h"
#include "io/files/csv.h"
#include "models/cli/console.h"
#include "models/cli/event_names.h"
#include "models/train/run/inference.h"

namespace sluice {
namespace {

constexpr int64_t kTop = 5;

// One row of a tensor as JSON.
Json RowOf(const Tensor& tensor, int64_t row) {
  const Tensor values = tensor.Rows(row, row + 1);
  const auto at = [&](int64_t i) {
    return IsFloating(values.dtype()) ? Json(values.At(i))
                                      : Json(values.IntAt(i));
  };
  if (values.shape().rank() == 1) return at(0);
  Json row_values = Json::Array();
  for (int64_t i = 0; i < values.elements(); ++i) row_values.Add(at(i));
  return row_values;
}

// Where the `count` largest elements are, the largest first; of equal ones the
// first. NaN, which is less or more than none, comes last.
std::vector<int64_t> Largest(const Tensor& values, int64_t count) {
  std::vector<int64_t> order(values.elements());
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, values.elements());
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int64_t a, int64_t b) {
                      const double x = values.At(a), y = values.At(b);
                      if (std::isnan(x) || std::isnan(y)) {
                        return std::isnan(x) == std::isnan(y) ? a < b
                                                              : std::isnan(y);
                      }
                      return x != y ? x > y : a < b;
                    });
  order.resize(count);
  return order;
}

// "probabilities 7 (0.998)": the largest element and where it is; of nothing
// but NaN "probabilities nan"; of one element alone "class 12346"; of none
// "boxes []".
std::string LargestOf(const std::string& name, const Tensor& tensor,
                      int64_t row) {
  const Tensor values = tensor.Rows(row, row + 1);
  if (values.elements() == 0) return name + " []";
  const int64_t best = Largest(values, 1)[0];
  if (!IsFloating(values.dtype())) {
    const int64_t whole = values.IntAt(best);
    return values.elements() == 1
               ? fmt::format("{} {}", name, whole)
               : fmt::format("{} {} ({})", name, best, whole);
  }
  const double value = values.At(best);
  if (values.elements() == 1 || std::isnan(value)) {
    return fmt::format("{} {:.4g}", name, value);
  }
  return fmt::format("{} {} ({:.4f})", name, best, value);
}

// The export of that name that has a value for each class, or the only one that
// has. An exported model and the training's have them in other orders.
const Tensor& Probabilities(const Example& exports) {
  std::vector<std::string> names;
  const Tensor* found = nullptr;
  for (const auto& [name, tensor] : exports) {
    if (tensor.shape().rank() != 2 || !IsFloating(tensor.dtype())) continue;
    if (name == "probabilities") return tensor;
    names.push_back(name);
    found = &tensor;
  }
  if (names.size() == 1) return *found;
  throw Error(Code::kInvalidArgument,
              names.empty()
                  ? "the model exports no probabilities [n, classes], so it "
                    "cannot say which classes a file may belong to"
                  : fmt::format("the model exports '{}' [n, classes] and none "
                                "of them as 'probabilities', so it cannot say "
                                "which classes a file may belong to",
                                fmt::join(names, "', '")));
}

}  // namespace

PredictionPrinter::PredictionPrinter(PredictionOptions options)
    : options_(std::move(options)) {
  if (options_.csv) console::Print("file,rank,class,name,probability,error");
}

std::string PredictionPrinter::Source() const {
  return options_.files.empty() ? fmt::format("{}", next_)
                                : options_.files[next_];
}

bool PredictionPrinter::Print(const Example& exports) {
  if (options_.json && options_.files.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : exports) names.push_back(name);
    CheckExportNames(names);
  }
  for (int64_t row = 0; row < RowsOf(exports); ++row) {
    PrintBad();
    if (Enough()) return false;
    if (options_.files.empty() && !options_.csv) {
      PrintExports(exports, row);
    } else {
      PrintClasses(exports, row);
    }
    ++next_;
  }
  return true;
}

void PredictionPrinter::PrintBad() {
  for (; options_.bad != nullptr && !Enough(); ++next_) {
    const std::string what = options_.bad->At(next_);
    if (what.empty()) return;
    ++bad_;
    const bool named = !options_.files.empty();
    if (options_.csv) {
      console::Print(
          fmt::format("{},,,,,{}", CsvField(Source()), CsvField(what)));
    } else if (options_.json) {
      Json event = {{"event", "prediction"}};
      if (named) event["file"] = options_.files[next_];
      if (!named) event["index"] = next_;
      event["error"] = what;
      console::Print(event.LenientText());
    } else {
      console::Print(named
                         ? fmt::format("{}\n  cannot be read: {}",
                                       options_.files[next_], what)
                         : fmt::format("{}: cannot be read: {}", next_, what));
    }
  }
}

void PredictionPrinter::PrintExports(const Example& exports,
                                     int64_t row) const {
  if (options_.json) {
    Json event = {{"event", "prediction"}, {"index", next_}};
    for (const auto& [name, tensor] : exports) {
      event[name] = RowOf(tensor, row);
    }
    console::Print(event.LenientText());
    return;
  }
  std::string text = fmt::format("{}:", next_);
  for (const auto& [name, tensor] : exports) {
    text += " " + LargestOf(name, tensor, row);
  }
  console::Print(text);
}

void PredictionPrinter::PrintClasses(const Example& exports,
                                     int64_t row) const {
  const Tensor values = Probabilities(exports).Rows(row, row + 1);
  const std::string file = Source();
  Json top = Json::Array();
  std::string text = file;
  int rank = 0;
  for (const int64_t number : Largest(values, kTop)) {
    ++rank;
    const std::string name = ClassName(number);
    if (options_.csv) {
      console::Print(fmt::format("{},{},{},{},{},", CsvField(file), rank,
                                 number, CsvField(name), values.At(number)));
      continue;
    }
    Json& one = top.Add({{"class", number}});
    if (!name.empty()) one["name"] = name;
    one["probability"] = values.At(number);
    text += fmt::format("\n  {:.4f}  {:>4}{}{}", values.At(number), number,
                        name.empty() ? "" : "  ", name);
  }
  if (options_.json) {
    text = Json{{"event", "prediction"}, {"file", file}, {"top", top}}
               .LenientText();
  }
  if (!options_.csv) console::Print(text);
}

std::string PredictionPrinter::ClassName(int64_t number) const {
  return number < static_cast<int64_t>(options_.class_names.size())
             ? options_.class_names[number]
             : "";
}

}  // namespace sluice
