// One element of a dataset: named tensors, in the order they were added.
#ifndef SLUICE_IO_EXAMPLE_H_
#define SLUICE_IO_EXAMPLE_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

// An element: before Batch one example, after it a batch of them (one more,
// leading dimension). Copies share the tensors. Not thread-safe.
class Example {
 public:
  using Entry = std::pair<std::string, Tensor>;

  Example() = default;
  Example(std::initializer_list<Entry> entries) : entries_(entries) {}

  // Throws Error(kNotFound) that lists the names there are.
  Tensor& operator[](std::string_view name);
  const Tensor& operator[](std::string_view name) const;
  bool contains(std::string_view name) const;
  // Adds a tensor or replaces the one of that name.
  void Set(std::string_view name, Tensor tensor);

  // How many examples were passed over right before it, as they could not be
  // read (Dataset::Map); of a batch, before and within it.
  int64_t passed_over() const { return passed_over_; }
  void set_passed_over(int64_t n) { passed_over_ = n; }

  // For a share (Dataset::Share), the number of examples of the whole batch,
  // over all workers; 0: it is no share.
  int64_t whole_rows() const { return whole_rows_; }
  void set_whole_rows(int64_t n) { whole_rows_ = n; }

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  const Tensor* Find(std::string_view name) const;
  std::vector<Entry> entries_;
  int64_t passed_over_ = 0;
  int64_t whole_rows_ = 0;
};

// Stacks examples of the same names, dtypes and shapes, and adds up
// passed_over; an error names the first that differs.
Result<Example> Stack(std::span<const Example> examples);

}  // namespace sluice

#endif  // SLUICE_IO_EXAMPLE_H_
