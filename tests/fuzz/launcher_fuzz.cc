// What a launcher and its agents on other hosts say to each other, by the first
// byte: any bytes are words, the same in one piece and in two, or an Error; any
// line is a plan that reads back, or an Error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/sluicerun/channel.h"
#include "apps/sluicerun/remote.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

// Those of a stream, up to where it is none, as they are said.
std::string Words(std::string_view first, std::string_view second, bool* good) {
  std::string all;
  *good = true;
  WordReader reader;
  try {
    for (const std::string_view bytes : {first, second}) {
      reader.Add(bytes);
      while (const auto word = reader.Next()) {
        (void)NumberOf(*word);
        all += Encoded(word->kind, word->text);
      }
    }
  } catch (const Error&) {
    *good = false;
  }
  return all;
}

void ReadWords(std::string_view bytes) {
  bool whole_good = false, cut_good = false;
  const std::string whole = Words(bytes, "", &whole_good);
  SLUICE_CHECK(bytes.starts_with(whole));
  const size_t cut = bytes.size() / 2;
  const std::string parts =
      Words(bytes.substr(0, cut), bytes.substr(cut), &cut_good);
  SLUICE_CHECK(whole == parts && whole_good == cut_good);
}

void ReadPlan(std::string_view line) {
  try {
    const std::string said = Encoded(DecodedPlan(line));
    SLUICE_CHECK(Encoded(DecodedPlan(said)) == said);
  } catch (const Error&) {  // as it is to be
  }
}

}  // namespace
}  // namespace sluice::launcher

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  if (data[0] % 2 == 0) {
    sluice::launcher::ReadWords(bytes);
  } else {
    sluice::launcher::ReadPlan(bytes);
  }
  return 0;
}
