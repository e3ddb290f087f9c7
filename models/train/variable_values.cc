#include "models/train/variable_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <map>
#include <tuple>

namespace sluice {
namespace {

// A list for one line of an error message: all of it, or the first few of one
// so long that the file must be another model's.
class Names {
 public:
  void Add(const std::string& name) { names_.push_back(name); }
  // "; missing: a, b and 301 more"
  std::string Clause(const char* what) const {
    if (names_.empty()) return "";
    const size_t shown = names_.size() > kMost ? kFew : names_.size();
    std::string more;
    if (shown < names_.size()) {
      more = fmt::format(" and {} more", names_.size() - shown);
    }
    return fmt::format("; {}: {}{}", what,
                       fmt::join(names_.begin(), names_.begin() + shown, ", "),
                       more);
  }

 private:
  static constexpr size_t kMost = 64, kFew = 4;
  std::vector<std::string> names_;
};

// Where a layout keeps a variable's value.
class Place {
 public:
  Place(const WeightLayout& layout, const Output& variable)
      : name_(layout.name ? layout.name(variable) : variable.name()),
        type_(variable.type()) {
    if (layout.order) order_ = layout.order(variable);
    for (size_t i = 0; i < order_.size(); ++i) {
      type_.shape.set(order_[i], variable.shape()[static_cast<int>(i)]);
    }
  }
  const std::string& name() const { return name_; }
  const TensorType& type() const { return type_; }

  // The tensor with the variable's order of dimensions.
  Tensor Arranged(const Tensor& tensor) const {
    if (order_.empty()) return tensor;
    const auto strides = Strides(tensor.shape());
    Shape shape = tensor.shape();
    std::array<int64_t, Shape::kMaxRank> steps{};
    for (size_t i = 0; i < order_.size(); ++i) {
      shape.set(static_cast<int>(i), tensor.shape()[order_[i]]);
      steps[i] = strides[order_[i]];
    }
    Tensor arranged(tensor.dtype(), shape);
    const auto width = static_cast<int64_t>(SizeOf(tensor.dtype()));
    const auto* from = static_cast<const char*>(tensor.raw());
    auto* to = static_cast<char*>(arranged.raw());
    std::array<int64_t, Shape::kMaxRank> index{};
    int64_t at = 0;
    for (int64_t n = arranged.elements(); n > 0; --n, to += width) {
      std::memcpy(to, from + at * width, width);
      for (int d = shape.rank() - 1; d >= 0; --d) {
        at += steps[d];
        if (++index[d] < shape[d]) break;
        at -= index[d] * steps[d];
        index[d] = 0;
      }
    }
    return arranged;
  }

 private:
  std::string name_;
  TensorType type_;
  std::vector<int> order_;
};

}  // namespace

void ReadVariables(const Session& session, const std::vector<Output>& variables,
                   std::vector<NamedTensor>* values) {
  values->resize(variables.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    (*values)[i].name = variables[i].name();
    session.Read(variables[i], &(*values)[i].tensor);
  }
}

std::vector<NamedTensor> ReadVariables(const Session& session,
                                       const std::vector<Output>& variables) {
  std::vector<NamedTensor> values;
  ReadVariables(session, variables, &values);
  return values;
}

Status WriteVariables(Session& session, const std::vector<Output>& variables,
                      const std::vector<NamedTensor>& tensors, Extra extra,
                      const std::string& source, const WeightLayout& layout) {
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& tensor : tensors) {
    by_name[tensor.name] = &tensor.tensor;
  }
  std::vector<std::tuple<Output, Place, const Tensor*>> writes;
  Names missing, reshaped, left_over;
  for (const Output& variable : variables) {
    const Place place(layout, variable);
    auto it = by_name.find(place.name());
    if (it == by_name.end()) {
      missing.Add(
          fmt::format("'{}' {}", place.name(), place.type().ToString()));
      continue;
    }
    const TensorType type = {it->second->dtype(), it->second->shape()};
    if (!(type == place.type())) {
      reshaped.Add(fmt::format("'{}' is {} in the file, {} in the model",
                               place.name(), type.ToString(),
                               place.type().ToString()));
    }
    writes.emplace_back(variable, place, it->second);
    by_name.erase(it);
  }
  if (extra == Extra::kRefused) {
    for (const auto& [name, tensor] : by_name) {
      left_over.Add(fmt::format("'{}'", name));
    }
  }
  const std::string wrong = missing.Clause("missing") +
                            reshaped.Clause("reshaped") +
                            left_over.Clause("extra");
  if (!wrong.empty()) {
    return InvalidArgument(
        fmt::format("'{}' does not fit this model{}", source, wrong));
  }
  for (const auto& [variable, place, tensor] : writes) {
    session.Write(variable, place.Arranged(*tensor));
  }
  return {};
}

}  // namespace sluice
