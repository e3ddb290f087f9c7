#include "graph/row_pieces.h"

#include <algorithm>

#include "engine/semantics/random.h"

namespace sluice {
namespace {

// A variable's attribute: its devices, with this between.
constexpr char kRowsOver[] = "rows_over";
constexpr char kBetween = ' ';

const std::string& DevicesOf(const Node& variable) {
  static const std::string none;
  const AttrValue* const devices = variable.attrs().Find(kRowsOver);
  return variable.IsVariable() && devices != nullptr
             ? devices->get<std::string>()
             : none;
}

}  // namespace

std::vector<RowPiece> CutRows(int64_t rows,
                              const std::vector<std::string>& devices) {
  const int64_t units = rows / kRandomAlignment;
  const int64_t count = std::clamp<int64_t>(
      static_cast<int64_t>(devices.size()), 1, std::max<int64_t>(units, 1));
  std::vector<RowPiece> pieces;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = pieces.empty() ? 0 : pieces.back().end;
    const int64_t end =
        i + 1 == count ? rows : units * (i + 1) / count * kRandomAlignment;
    pieces.push_back({devices[static_cast<size_t>(i)], begin, end});
  }
  return pieces;
}

void SpreadRows(Node& variable, const std::vector<std::string>& devices) {
  SLUICE_CHECK(variable.IsVariable() && !devices.empty());
  SLUICE_CHECK(variable.output_type(0).shape.rank() > 0);
  std::string text;
  for (const std::string& device : devices) {
    if (!text.empty()) text += kBetween;
    text += device;
  }
  variable.set_attr(kRowsOver, text);
  variable.set_device(devices[0]);
}

void UnspreadRows(Node& variable) {
  variable.set_attr(kRowsOver, std::string());
  variable.set_device("");
}

bool SpreadsRows(const Node& variable) {
  return !DevicesOf(variable).empty();
}

std::vector<RowPiece> PiecesOf(const Node& variable) {
  std::vector<std::string> devices;
  const std::string& text = DevicesOf(variable);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(kBetween, at), text.size());
    devices.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (devices.empty()) return {};
  return CutRows(variable.output_type(0).shape[0], devices);
}

}  // namespace sluice
