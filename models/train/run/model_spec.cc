#include "models/train/run/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "graph/builder.h"

namespace sluice {

namespace {

// What MapBytes does, rounded alike.
Output ToFloats(const Output& bytes, const BytesToFloats& map) {
  Graph& graph = bytes.graph();
  const NameScope scope(Scope(graph, map.name));
  const auto constant = [&](const std::vector<float>& values) {
    return graph.Constant(values.size() == 1
                              ? Tensor::Scalar(values[0])
                              : Tensor::Vector(std::span<const float>(values)));
  };
  return Cast(bytes, DType::kFloat32) * constant(map.factor) +
         constant(map.shift);
}

}  // namespace

Features::Features(Graph& graph, const Example& batch,
                   std::vector<BytesToFloats> to_floats)
    : to_floats_(std::move(to_floats)) {
  for (const BytesToFloats& map : to_floats_) {
    const Tensor& bytes = batch[map.name];
    RequireBytes(map, bytes.dtype(), bytes.shape());
  }
  for (const auto& [name, tensor] : batch) {
    Shape shape = tensor.shape();
    if (shape.scalar()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("the input function must end with Batch: '{}' "
                              "has no dimensions",
                              name));
    }
    sample_.push_back(shape);
    shape.set(0, kUnknown);
    placeholders_.emplace_back(name,
                               graph.Placeholder(name, tensor.dtype(), shape));
  }
}

Output Features::operator[](std::string_view name) const {
  const Output placeholder = Placeholder(name);
  const auto map = std::find_if(
      to_floats_.begin(), to_floats_.end(),
      [&](const BytesToFloats& left) { return left.name == name; });
  if (map == to_floats_.end()) return placeholder;
  Output& floats = floats_[map->name];
  if (!floats.valid()) floats = ToFloats(placeholder, *map);
  return floats;
}

Output Features::Placeholder(std::string_view name) const {
  std::string names;
  for (const auto& [known, output] : placeholders_) {
    if (known == name) return output;
    names += names.empty() ? known : ", " + known;
  }
  throw Error(Code::kNotFound,
              fmt::format("the input has no '{}', only: {}", name, names));
}

Output Features::Varying(std::string_view name,
                         const std::vector<int>& dimensions) const {
  const Output placeholder = Placeholder(name);
  Node& node = placeholder.node();
  Shape shape = placeholder.shape();
  for (const int dimension : dimensions) {
    if (dimension < 0 || dimension >= shape.rank()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' has {} dimensions, there is no {}", name,
                              shape.rank(), dimension));
    }
    shape.set(dimension, kUnknown);
  }
  for (const auto& user : placeholder.graph().nodes()) {
    for (const Output& input : user->inputs()) {
      if (!(input == placeholder)) continue;
      throw Error(Code::kFailedPrecondition,
                  fmt::format("'{}' is used already, by {}: say first which of "
                              "its dimensions vary",
                              name, user->Describe()));
    }
  }
  node.set_attr("shape", shape);
  node.set_output_types({{placeholder.dtype(), shape}});
  return (*this)[name];
}

Output Features::AddScalar(Graph& graph, const std::string& name) {
  for (const auto& [known, output] : placeholders_) {
    if (known != name) continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("the input must have no '{}'", name));
  }
  sample_.emplace_back();
  placeholders_.emplace_back(name,
                             graph.Placeholder(name, DType::kFloat32, {}));
  return placeholders_.back().second;
}

std::vector<Shape> Features::ShapesFor(int64_t examples) const {
  std::vector<Shape> shapes = sample_;
  for (Shape& shape : shapes) {
    if (!shape.scalar()) shape.set(0, examples);
  }
  return shapes;
}

}  // namespace sluice
