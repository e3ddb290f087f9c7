// The manifest that `sluice data make` writes beside the shards of a part of
// the data, such as train.json beside train-00000-of-00003: how many records
// these are to have. Internal to io and the tool.
#ifndef SLUICE_IO_RECORDS_RECORD_MANIFEST_H_
#define SLUICE_IO_RECORDS_RECORD_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {

struct RecordManifest {
  std::string path;
  int64_t records = 0;
  int64_t shards = 0;
};

// The manifest of a part; nullopt where there is none, or none of ours. An
// error where that cannot be told.
Result<std::optional<RecordManifest>> ReadManifest(const std::string& folder,
                                                   std::string_view part);
// The manifest of these files, where they are all of its shards, each once, in
// any order. Errors of ReadManifest.
Result<std::optional<RecordManifest>> FindManifest(
    const std::vector<std::string>& paths);

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_RECORD_MANIFEST_H_
