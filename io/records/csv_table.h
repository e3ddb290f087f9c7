// The tensors that rows of tables in CSV files become. Internal to io.
#ifndef SLUICE_IO_RECORDS_CSV_TABLE_H_
#define SLUICE_IO_RECORDS_CSV_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.h"
#include "io/example.h"
#include "io/records/csv_dataset.h"

namespace sluice {

using CsvValues = std::span<const std::string_view>;  // of a row

// The columns of a table. Thread-safe, but for Infer.
class CsvTable {
 public:
  // `place` is of the header, for messages. Throws Error as datasets::Csv does.
  CsvTable(std::vector<std::string> header, const CsvOptions& options,
           const std::string& place);

  // To be called for some rows, one after another, before Read: chooses the
  // types of the columns of which nothing is said. Throws Error for a row of
  // another length.
  void Infer(CsvValues row, const std::string& place);
  // To be called after the last Infer; throws Error where the rows had no value
  // in a column. `path` is for messages.
  void EndInfer(const std::string& path);

  // The example of a row. Throws Error(kDataLoss); `place` is of the row, for
  // messages.
  Example Read(CsvValues row, const std::string& place) const;

 private:
  // An inferred column is of the first of these types that fits, else text.
  static constexpr std::array kInferred = {DType::kInt64, DType::kFloat32,
                                           DType::kFloat64};
  struct Column {
    size_t at = 0;        // in a row
    std::string feature;  // the tensor's name
    CsvColumn as = {};    // what its values are
    Tensor missing = {};  // where `as` has it
    std::map<std::string, int64_t, std::less<>> words = {};
    bool inferred = false;
    // Of the values to infer from: whether there is one, and which types hold
    // all.
    bool has_value = false;
    std::array<bool, kInferred.size()> fits = {true, true, true};
  };

  void Add(size_t at, const CsvColumn& as, bool inferred);
  bool IsMissing(std::string_view value) const;
  void CheckLength(CsvValues row, const std::string& place) const;
  Tensor Value(const Column& column, std::string_view value) const;

  const std::vector<std::string> header_;
  const std::string label_;
  const std::set<std::string, std::less<>> missing_;
  std::vector<Column> columns_;
};

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_CSV_TABLE_H_
