// Datasets of files that are read from the first byte to the last, so that they
// may be compressed and need not fit into memory.
#ifndef SLUICE_IO_RECORDS_FILE_DATASETS_H_
#define SLUICE_IO_RECORDS_FILE_DATASETS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

// The bytes of a tensor, as long as it lives. It must be uint8: throws
// Error(kInvalidArgument).
std::string_view BytesOf(const Tensor& tensor);

// The order in which files are read, and how.
struct FileOptions {
  // How many files are read in turn, an example of each (Dataset::Interleave).
  int64_t cycle = 1;
  // Every epoch reads the files in another order, a function of this seed and
  // the epoch. Without it in the order in which they are named.
  std::optional<uint64_t> shuffle_seed = std::nullopt;
  // How many threads read files ahead; 0: as many as help.
  int threads = 1;
  // Records get their places, too, as "place", for messages, of the type of
  // "bytes".
  bool places = false;
  // Whatever else decides which examples the files become: positions can only
  // be restored with these files and the same meaning.
  std::string meaning = {};
};

namespace datasets {

// The records of TFRecord files, plain or compressed by gzip or zlib: "bytes",
// uint8 [length]. Where records are not compressed and are to be read in any
// order, see io/records/record_files.h. How many there are is known where the
// files are all shards of a part that `sluice data make` wrote: as many as the
// PART.json beside them says (Dataset::ExpectSize). An iterator returns
// kNotFound, kUnavailable, and kDataLoss naming file and byte. Positions are
// restored with files of the same names, without their folders, sizes and first
// 64 KiB. Throws Error where a file is not there, or where it cannot be told
// whether there is a PART.json.
Dataset Records(const std::vector<std::string>& paths,
                FileOptions options = {});

// The lines of text files, plain or compressed by gzip, without their ends,
// which are LF or CR LF: "bytes", uint8 [length]. As Records.
Dataset TextLines(const std::vector<std::string>& paths,
                  FileOptions options = {});

}  // namespace datasets
}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_FILE_DATASETS_H_
