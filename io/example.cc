#include "io/example.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/allocate.h"

namespace sluice {

const Tensor* Example::Find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

const Tensor& Example::operator[](std::string_view name) const {
  if (const Tensor* tensor = Find(name)) return *tensor;
  std::string names;
  for (const Entry& entry : entries_) {
    names += (names.empty() ? "'" : ", '") + entry.first + "'";
  }
  throw Error(Code::kNotFound,
              fmt::format("an example has no tensor '{}'; it has {}", name,
                          names.empty() ? "none" : names));
}

Tensor& Example::operator[](std::string_view name) {
  return const_cast<Tensor&>(std::as_const(*this)[name]);
}

bool Example::contains(std::string_view name) const {
  return Find(name) != nullptr;
}

void Example::Set(std::string_view name, Tensor tensor) {
  if (contains(name)) {
    (*this)[name] = std::move(tensor);
  } else {
    entries_.emplace_back(name, std::move(tensor));
  }
}

namespace {

Shape WithLeading(int64_t n, const Shape& shape) {
  Shape out{n};
  for (int64_t d : shape) out.push_back(d);
  return out;
}

}  // namespace

Result<Example> Stack(std::span<const Example> examples) {
  SLUICE_CHECK(!examples.empty());
  Example batch;
  for (const auto& [name, first] : examples[0]) {
    if (first.shape().rank() == Shape::kMaxRank) {
      return InvalidArgument(fmt::format(
          "Batch: '{}' of shape {} has no room for another dimension", name,
          first.shape().ToString()));
    }
    SLUICE_ASSIGN_OR_RETURN(
        Tensor stacked,
        AllocateTensor(
            first.dtype(),
            WithLeading(static_cast<int64_t>(examples.size()), first.shape())));
    char* out = static_cast<char*>(stacked.raw());
    for (size_t i = 0; i < examples.size(); ++i) {
      if (examples[i].size() != examples[0].size() ||
          !examples[i].contains(name)) {
        return InvalidArgument(fmt::format(
            "Batch: example {} has other tensors than example 0", i));
      }
      const Tensor& tensor = examples[i][name];
      if (tensor.dtype() != first.dtype() ||
          !(tensor.shape() == first.shape())) {
        return InvalidArgument(fmt::format(
            "Batch: '{}' differs within the batch: {}{} in example 0, {}{} in "
            "example {}; give all the same dtype and shape with Map",
            name, NameOf(first.dtype()), first.shape().ToString(),
            NameOf(tensor.dtype()), tensor.shape().ToString(), i));
      }
      if (tensor.bytes() > 0) std::memcpy(out, tensor.raw(), tensor.bytes());
      out += tensor.bytes();
    }
    batch.Set(name, std::move(stacked));
  }
  int64_t passed_over = 0;
  for (const Example& example : examples) passed_over += example.passed_over();
  batch.set_passed_over(passed_over);
  return batch;
}

}  // namespace sluice
