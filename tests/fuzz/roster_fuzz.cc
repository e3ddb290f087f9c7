// Any bytes are no word of a roster, or one that is written as it was read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dist/membership/roster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto meeting = sluice::dist::ParseMeeting(text); meeting.ok()) {
    const auto again =
        sluice::dist::ParseMeeting(sluice::dist::Encoded(*meeting));
    SLUICE_CHECK(again.ok());
    SLUICE_CHECK(again->port == meeting->port);
    SLUICE_CHECK(again->done == meeting->done);
    SLUICE_CHECK(again->patience == meeting->patience);
    SLUICE_CHECK(again->silence == meeting->silence);
    SLUICE_CHECK(again->build == meeting->build);
  }
  if (const auto group = sluice::dist::ParseAssembly(text); group.ok()) {
    const auto again =
        sluice::dist::ParseAssembly(sluice::dist::Encoded(*group));
    SLUICE_CHECK(again.ok());
    SLUICE_CHECK(again->epoch == group->epoch);
    SLUICE_CHECK(again->port == group->port);
    SLUICE_CHECK(again->seats == group->seats);
    SLUICE_CHECK(again->hosts == group->hosts);
    SLUICE_CHECK(again->address == group->address);
  }
  return 0;
}
