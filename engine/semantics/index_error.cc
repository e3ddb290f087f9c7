#include "engine/semantics/index_error.h"

#include <fmt/format.h>

namespace sluice {

Status IndexOutOfRange(std::string_view index, int64_t position,
                       int64_t limit) {
  return OutOfRange(
      fmt::format("index {} (element {} of the indices) is not within [0, {})",
                  index, position, limit));
}

Status LabelOutOfRange(std::string_view label, int64_t row, int64_t classes) {
  return OutOfRange(
      fmt::format("label {} in row {} is not a class: the logits have {} "
                  "classes, counted from 0",
                  label, row, classes));
}

}  // namespace sluice
