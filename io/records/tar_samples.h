// Finds the samples of a tar archive (io/records/tar_files.h). Internal to io.
#ifndef SLUICE_IO_RECORDS_TAR_SAMPLES_H_
#define SLUICE_IO_RECORDS_TAR_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/files/open_files.h"
#include "io/records/tar_files.h"

namespace sluice {

enum class TarLabelKind : uint8_t { kNone, kText, kJson };

// Where bytes are in an archive.
struct TarExtent {
  uint64_t offset = 0, size = 0;
};

struct TarSample {
  TarExtent picture, label;
  uint32_t header = 0;     // TarMember's, of the picture
  uint32_t name_size = 0;  // of the picture, or of another file where none is
  size_t name_begin = 0;   // in TarShard::names
  TarLabelKind label_kind = TarLabelKind::kNone;
};

struct TarShard {
  std::string path;
  uint64_t size = 0;         // bytes
  std::string version = {};  // when it was opened
  std::vector<TarSample> samples = {};
  std::string names = {};
  // The faults of bad samples, which have neither extent, by the sample's
  // number.
  std::map<size_t, std::string> faults = {};

  std::string_view NameOf(const TarSample& sample) const {
    return std::string_view(names).substr(sample.name_begin, sample.name_size);
  }
};

// Learns where the samples are in the archive shard->path, which is number
// `number` of `open`. Errors as TarFiles::Open's.
Status LearnTarSamples(FileSystem& files, TarLabels labels, size_t number,
                       OpenFiles* open, TarShard* shard);

// "n01/0001" of "n01/0001.seg.png".
std::string_view TarKeyOf(std::string_view name);

// A sample as messages name it: "'dir/train-000003.tar', sample 'n01/0001'".
std::string PlaceOfTarSample(const std::string& path, std::string_view key);

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_TAR_SAMPLES_H_
