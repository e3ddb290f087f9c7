#include "models/train/model_spec.h"

#include <fmt/format.h>

namespace sluice {

Features::Features(Graph& graph, const Example& batch) {
  for (const auto& [name, tensor] : batch) {
    Shape shape = tensor.shape();
    if (shape.scalar()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("the input function must end with Batch: '{}' "
                              "has no dimensions",
                              name));
    }
    shape.set(0, kUnknown);
    placeholders_.emplace_back(name,
                               graph.Placeholder(name, tensor.dtype(), shape));
  }
}

Output Features::operator[](std::string_view name) const {
  std::string names;
  for (const auto& [known, output] : placeholders_) {
    if (known == name) return output;
    names += names.empty() ? known : ", " + known;
  }
  throw Error(Code::kNotFound,
              fmt::format("the input has no '{}', only: {}", name, names));
}

}  // namespace sluice
