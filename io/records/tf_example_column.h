// A feature of many rows as one tensor: what ParseTfExamples makes of the
// examples of a batch, and ParseTfSequenceExample of the steps of a list.
#ifndef SLUICE_IO_RECORDS_TF_EXAMPLE_COLUMN_H_
#define SLUICE_IO_RECORDS_TF_EXAMPLE_COLUMN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "io/records/tf_example.h"
#include "io/records/tf_example_wire.h"

namespace sluice::tf_wire {

// Start, then for each row SetRow, where it has the feature, and EndRow, then
// Take. Not thread-safe.
class FeatureColumn {
 public:
  // kInvalidArgument for a spec that no feature can meet. The column keeps a
  // reference to it.
  static Result<std::unique_ptr<FeatureColumn>> Make(const FeatureSpec& spec);
  virtual ~FeatureColumn() = default;

  // Forgets all rows. `rows` rows will come; nullopt: one row, for which the
  // tensor has no dimension.
  virtual Status Start(std::optional<int64_t> rows) = 0;
  // Sets the row's values, in place of any before. The bytes that the lists
  // view must live until Take. False where they are no lists.
  virtual bool SetRow(std::span<const List> lists) = 0;
  // Ends a row. kNotFound where it has no such feature, kInvalidArgument where
  // it does not hold what the spec wants.
  virtual Status EndRow() = 0;
  virtual Status Take(Tensor* out) = 0;
};

// Finds columns by their feature's name: fast where names come in the order of
// last time, as writers repeat it.
class ColumnNames {
 public:
  static constexpr size_t kNoColumn = SIZE_MAX;

  explicit ColumnNames(std::span<const FeatureSpec> features);

  // A column of the name that comes as number `position`; kNoColumn if none is.
  // The name must outlive this object.
  size_t Find(std::string_view name, size_t position) {
    const bool as_last =
        position < last_.size() && last_[position].name == name;
    return as_last ? last_[position].column : Search(name, position);
  }
  // The next column of the same name.
  size_t Next(size_t column) const { return next_[column]; }

 private:
  struct Named {
    std::string_view name;
    size_t column;
  };
  size_t Search(std::string_view name, size_t position);

  std::vector<Named> sorted_;  // of one name the first column comes first
  std::vector<size_t> next_;
  std::vector<Named> last_;  // by position
};

}  // namespace sluice::tf_wire

#endif  // SLUICE_IO_RECORDS_TF_EXAMPLE_COLUMN_H_
