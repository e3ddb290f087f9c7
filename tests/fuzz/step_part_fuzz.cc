// Any text, as a worker is given it, makes a part of a step or an error; a part
// survives being printed and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/compile/step_part.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::ParsePart;
  using sluice::PrintPart;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto part = ParsePart(text);
  if (!part.ok()) return 0;
  const std::string printed = PrintPart(*part);
  const auto again = ParsePart(printed);
  SLUICE_CHECK(again.ok());
  SLUICE_CHECK(PrintPart(*again) == printed);
  return 0;
}
