// Any bytes are a table or an error: the same rows whatever pieces they come
// in, which read back from what is written of them, and of which examples are
// made or an error says why not.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/files/csv.h"
#include "io/records/csv_table.h"

namespace sluice {
namespace {

using Rows = std::vector<CsvRow>;

// As ParseCsv, from pieces whose sizes the bytes themselves say.
Result<Rows> InPieces(std::string_view text) {
  CsvParser parser("f", ',');
  Rows rows;
  while (!text.empty()) {
    const size_t piece =
        std::min<size_t>(1 + static_cast<uint8_t>(text[0]) % 7, text.size());
    SLUICE_ASSIGN_OR_RETURN(const size_t taken,
                            parser.Take(text.substr(0, piece)));
    SLUICE_CHECK(taken > 0 && taken <= piece);
    text.remove_prefix(taken);
    if (parser.whole()) rows.push_back(parser.row());
  }
  SLUICE_RETURN_IF_ERROR(parser.End());
  if (parser.whole()) rows.push_back(parser.row());
  return rows;
}

bool Same(const Rows& a, const Rows& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const CsvRow& x, const CsvRow& y) { return x.fields == y.fields; });
}

void CheckWriting(const Rows& rows) {
  std::string text;
  for (const CsvRow& row : rows) {
    std::string line;
    for (const std::string& field : row.fields) {
      line += (line.empty() && &field == row.fields.data() ? "" : ",") +
              CsvField(field);
    }
    text += (line.empty() ? "\"\"" : line) + "\n";  // an empty line is no row
  }
  SLUICE_CHECK(Same(ParseCsv(text, "f").ValueOrThrow(), rows));
}

std::vector<std::string_view> ValuesOf(const CsvRow& row) {
  return {row.fields.begin(), row.fields.end()};
}

// The first row names the columns, which are inferred from the others.
void CheckTable(const Rows& rows) {
  if (rows.empty()) return;
  const std::string& label = rows[0].fields[0];  // without a name there is none
  try {
    CsvTable table(rows[0].fields, {.infer_rows = 4, .label = label}, "f");
    for (size_t i = 1; i < std::min<size_t>(rows.size(), 5); ++i) {
      table.Infer(ValuesOf(rows[i]), "f");
    }
    table.EndInfer("f");
    for (size_t i = 1; i < rows.size(); ++i) {
      const Example example = table.Read(ValuesOf(rows[i]), "f");
      SLUICE_CHECK(label.empty() || example["label"].elements() > 0);
    }
  } catch (const Error& error) {
    SLUICE_CHECK(error.code() == Code::kDataLoss ||
                 error.code() == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto rows = sluice::ParseCsv(text, "f");
  const auto pieces = sluice::InPieces(text);
  SLUICE_CHECK(rows.ok() == pieces.ok());
  if (!rows.ok()) {
    SLUICE_CHECK(rows.status().code() == sluice::Code::kDataLoss);
    SLUICE_CHECK(rows.status().message() == pieces.status().message());
    return 0;
  }
  SLUICE_CHECK(sluice::Same(*rows, *pieces));
  sluice::CheckWriting(*rows);
  sluice::CheckTable(*rows);
  return 0;
}
