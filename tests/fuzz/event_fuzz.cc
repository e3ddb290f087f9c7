// Any bytes make a list of events and perhaps a warning: as a file, whose
// checksums stop most inputs, and as the payload of one record.
#include <string_view>

#include "io/files/record.h"
#include "io/summaries/event_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  SLUICE_CHECK(sluice::ParseEvents(bytes).ok());
  std::string record;
  sluice::AppendRecord(bytes, &record);
  const auto file = sluice::ParseEvents(record);
  SLUICE_CHECK(file.ok());
  SLUICE_CHECK(file->records.empty() || file->warning.empty());
  return 0;
}
