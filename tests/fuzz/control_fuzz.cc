// Any bytes, in two parts cut anywhere, are the messages that they are as one;
// what was read is written to bytes that read the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "dist/membership/control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::dist::ControlMessage;
  using sluice::dist::ControlReader;
  if (size == 0) return 0;
  const size_t cut = std::min<size_t>(data[0], size - 1);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  std::vector<ControlMessage> whole, parts, again;
  const bool good = ControlReader(4).Add(bytes, &whole).ok();
  ControlReader reader(4);
  const bool first = reader.Add(bytes.substr(0, cut), &parts).ok();
  const bool second = first && reader.Add(bytes.substr(cut), &parts).ok();
  SLUICE_CHECK(good == second);
  SLUICE_CHECK(!good || whole.size() == parts.size());
  for (const ControlMessage& message : whole) {
    SLUICE_CHECK(
        ControlReader(4).Add(sluice::dist::Encoded(message), &again).ok());
    SLUICE_CHECK(again.back().reason.message() == message.reason.message());
    SLUICE_CHECK(again.back().waits_in == message.waits_in);
  }
  SLUICE_CHECK(again.size() == whole.size());
  return 0;
}
