#include "models/variable_values.h"

#include <fmt/format.h>

#include <map>

namespace sluice {
namespace {

// The first few of a list, for one line of an error message.
class Names {
 public:
  void Add(const std::string& name) {
    if (count_++ < kShown) {
      text_ += (text_.empty() ? "" : ", ") + name;
    }
  }
  // "; missing: a, b and 3 more"
  std::string Clause(const char* what) const {
    if (count_ == 0) return "";
    const std::string more =
        count_ > kShown ? fmt::format(" and {} more", count_ - kShown) : "";
    return fmt::format("; {}: {}{}", what, text_, more);
  }

 private:
  static constexpr int kShown = 4;
  int count_ = 0;
  std::string text_;
};

}  // namespace

std::vector<NamedTensor> ReadVariables(const Session& session,
                                       const std::vector<Output>& variables) {
  std::vector<NamedTensor> tensors;
  for (const Output& variable : variables) {
    tensors.push_back({variable.name(), session.Read(variable)});
  }
  return tensors;
}

Status WriteVariables(Session& session, const std::vector<Output>& variables,
                      const std::vector<NamedTensor>& tensors, Extra extra,
                      const std::string& source) {
  std::map<std::string, const Tensor*> by_name;
  for (const NamedTensor& tensor : tensors) {
    by_name[tensor.name] = &tensor.tensor;
  }
  std::vector<std::pair<Output, const Tensor*>> writes;
  Names missing, reshaped, left_over;
  for (const Output& variable : variables) {
    auto it = by_name.find(variable.name());
    if (it == by_name.end()) {
      missing.Add(
          fmt::format("'{}' {}", variable.name(), variable.type().ToString()));
      continue;
    }
    const TensorType type = {it->second->dtype(), it->second->shape()};
    if (!(type == variable.type())) {
      reshaped.Add(fmt::format("'{}' is {} in the file, {} in the model",
                               variable.name(), type.ToString(),
                               variable.type().ToString()));
    }
    writes.emplace_back(variable, it->second);
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
  for (const auto& [variable, tensor] : writes) {
    session.Write(variable, *tensor);
  }
  return {};
}

}  // namespace sluice
