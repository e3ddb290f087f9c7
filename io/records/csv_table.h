// What the rows of tables in CSV files become. Internal to io.
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

  // For some rows, one after the other, before Read: chooses what columns are
  // of which nothing is said. Throws Error for a row of another length.
  void Infer(CsvValues row, const std::string& place);
  // After these; throws Error where they said nothing of a column.
  void EndInfer(const std::string& path);

  // Throws Error(kDataLoss); `place` is of the row, for messages.
  Example Read(CsvValues row, const std::string& place) const;

 private:
  // Inferred columns are of the first of these that fits, or text.
  static constexpr std::array kInferred = {DType::kInt64, DType::kFloat32,
                                           DType::kFloat64};
  struct Column {
    size_t at = 0;        // in a row
    std::string feature;  // the tensor's name
    CsvColumn as = {};    // what its values are
    Tensor missing = {};  // where `as` has it
    std::map<std::string, int64_t, std::less<>> words = {};
    bool inferred = false;
    // Of those to infer from: whether there is one, and which types hold all.
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
