#include "models/train/values/variable_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "engine/catch_errors.h"
#include "engine/convert.h"

namespace sluice {
namespace {

// A list for one line of an error message: all of it, or the first few of one
// so long that the file must be another model's.
class ListedNames {
 public:
  void Add(std::string name) { names_.push_back(std::move(name)); }
  size_t size() const { return names_.size(); }
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

// Which tensors a variable of another dtype takes.
enum class Conversion { kNone, kFloating };

// A finite number of the tensor that is infinite in `dtype`. The other dtypes
// that are converted have all their numbers in those they become.
std::optional<double> Beyond(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() != DType::kFloat64 || dtype != DType::kFloat32) return {};
  for (const double x : tensor.values<double>()) {
    if (std::isfinite(x) && std::isinf(Convert<float>(x))) return x;
  }
  return {};
}

// What keeps tensors from being the values of variables.
class Misfits {
 public:
  explicit Misfits(Conversion conversion) : conversion_(conversion) {}

  void Missing(const Place& place) {
    missing_.Add(fmt::format("'{}' {}", place.name(), place.type().ToString()));
  }
  void LeftOver(const std::string& name) {
    left_over_.Add(fmt::format("'{}'", name));
  }
  // Whether the tensor is the variable's, or becomes it by conversion.
  void Compare(const Tensor& tensor, const Place& place,
               const Output& variable) {
    const TensorType type = {tensor.dtype(), tensor.shape()};
    const TensorType& wanted = place.type();
    const bool same_shape = type.shape == wanted.shape;
    if (!same_shape) resized_.push_back(variable.name());
    if (!same_shape || !Takes(wanted.dtype, type.dtype)) {
      reshaped_.Add(fmt::format("'{}' is {} in the file, {} in the model",
                                place.name(), type.ToString(),
                                wanted.ToString()));
    } else if (const auto number = Beyond(tensor, wanted.dtype)) {
      beyond_.Add(fmt::format("'{}' has {}", place.name(), *number));
    }
  }

  Status ToStatus(const std::string& source) const {
    const std::string wrong =
        missing_.Clause("missing") + reshaped_.Clause("reshaped") +
        beyond_.Clause("beyond float32") + left_over_.Clause("extra");
    if (wrong.empty()) return {};
    return InvalidArgument(fmt::format("'{}' does not fit this model{}{}",
                                       source, wrong, Advice()));
  }

 private:
  bool Takes(DType variable, DType tensor) const {
    return variable == tensor ||
           (conversion_ == Conversion::kFloating && IsFloating(tensor) &&
            kFloatDouble.Contains(variable));
  }

  // For weights alone: a checkpoint is taken as a whole. Of more that is wrong
  // the file is another model's.
  std::string Advice() const {
    constexpr size_t kFew = 8;
    const size_t wrong =
        missing_.size() + reshaped_.size() + beyond_.size() + left_over_.size();
    if (conversion_ == Conversion::kNone || resized_.empty() || wrong > kFew) {
      return "";
    }
    return fmt::format(
        "; leave '{}' at {} with a reset pattern", fmt::join(resized_, "', '"),
        resized_.size() == 1 ? "its first value" : "their first values");
  }

  const Conversion conversion_;
  ListedNames missing_, reshaped_, beyond_, left_over_;
  std::vector<std::string> resized_;  // variables of another shape
};

// A variable and the tensor for it.
struct Assignment {
  Output variable;
  Place place;
  const Tensor* tensor;
};

// What is to be written where everything fits. `tensors` must outlive it.
Result<std::vector<Assignment>> Assign(const std::vector<Output>& variables,
                                       const std::vector<NamedTensor>& tensors,
                                       Extra extra, Conversion conversion,
                                       const std::string& source,
                                       const WeightLayout& layout) {
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& tensor : tensors) {
    by_name[tensor.name] = &tensor.tensor;
  }
  std::vector<Assignment> assignments;
  Misfits misfits(conversion);
  for (const Output& variable : variables) {
    const Place place(layout, variable);
    auto it = by_name.find(place.name());
    if (it == by_name.end()) {
      misfits.Missing(place);
      continue;
    }
    misfits.Compare(*it->second, place, variable);
    assignments.push_back({variable, place, it->second});
    by_name.erase(it);
  }
  if (extra == Extra::kRefused) {
    for (const auto& [name, tensor] : by_name) misfits.LeftOver(name);
  }
  SLUICE_RETURN_IF_ERROR(misfits.ToStatus(source));
  return assignments;
}

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
                      const std::string& source) {
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<Assignment> assignments,
      Assign(variables, tensors, extra, Conversion::kNone, source, {}));
  for (const Assignment& assignment : assignments) {
    session.Write(assignment.variable, *assignment.tensor);
  }
  return {};
}

Status WriteByRows(Session& session, const Output& variable,
                   const RowsTensor& tensor) {
  return ForRows(tensor, [&](int64_t begin, const Tensor& rows) {
    return CatchErrors([&] { session.WriteRows(variable, begin, rows); });
  });
}

Result<int64_t> WriteWeights(Session& session,
                             const std::vector<Output>& variables,
                             const std::vector<NamedTensor>& tensors,
                             const std::string& source,
                             const WeightLayout& layout) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Assignment> assignments,
                          Assign(variables, tensors, Extra::kRefused,
                                 Conversion::kFloating, source, layout));
  int64_t converted = 0;
  for (const auto& [variable, place, tensor] : assignments) {
    Tensor value = place.Arranged(*tensor);
    if (value.dtype() != variable.dtype()) {
      value = value.Cast(variable.dtype());
      ++converted;
    }
    session.Write(variable, value);
  }
  return converted;
}

}  // namespace sluice
