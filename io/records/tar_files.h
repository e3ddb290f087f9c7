// Pictures with their classes in tar archives, as WebDataset has them.
//
// A sample is the files of one name up to the first dot behind the last slash,
// its key, one after the other in an archive:
//   n01/0001.jpg  (or .jpeg, .png)   the picture
//   n01/0001.cls                     its label in decimal; or else
//   n01/0001.json                    an object with a number "label"
// Other files of a sample, files without such a name and hidden ones are passed
// over, and so are keys that have only other files, or only json. Extensions
// may be in capitals. A sample is bad where it has no picture or two, no label
// (unless labels are ignored) or two of one kind.
#ifndef SLUICE_IO_RECORDS_TAR_FILES_H_
#define SLUICE_IO_RECORDS_TAR_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/files/file.h"

namespace SLUICE_INTERNAL sluice {

enum class TarLabels : uint8_t { kRead, kIgnored };

struct TarPicture {
  std::string encoded;  // JPEG or PNG
  int64_t label = 0;    // 0 where labels are ignored
  std::string name;     // its path in the archive
};

// Thread-safe. Keeps some 60 bytes and its name for each picture in memory and,
// besides those being read, at most 64 files open.
class TarFiles {
 public:
  // Learns where the samples are, on `threads` threads, a file each; what is in
  // them is not looked at. Errors name file and byte as TarReader's do, or file
  // and sample: kDataLoss where its key is there again elsewhere in the file,
  // kUnimplemented where one of its files is a link. kNotFound. Of several
  // files' errors the first file's is returned.
  static Result<std::shared_ptr<const TarFiles>> Open(
      const std::vector<std::string>& paths, TarLabels labels, int threads = 1,
      FileSystem& files = FileSystem::Default());
  ~TarFiles();

  // Samples of all files.
  int64_t size() const;
  // A sample, 0 to size() - 1 in the order of the files. kDataLoss naming file
  // and sample where it is bad, its label is none, or the file has changed;
  // kUnavailable where the file is gone or has another size.
  Result<TarPicture> Read(int64_t sample) const;
  // The label of a sample alone; errors as Read.
  Result<int64_t> Label(int64_t sample) const;
  // The number of samples of the file with that number.
  int64_t CountOf(size_t file) const;
  // The version of that file when it was opened (ReadableFile::version).
  const std::string& VersionOf(size_t file) const;
  // Where a sample is, for messages: "'dir/train-000003.tar', sample
  // 'n01/0001'".
  std::string PlaceOf(int64_t sample) const;
  // Tells sets of samples apart: a checksum of the files' names without their
  // folders, their sizes, where their samples are, and, of up to 16 samples of
  // each, the label and the end of the picture, which it reads. Errors as Read.
  Result<std::string> Identity() const;

 private:
  struct State;
  explicit TarFiles(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_TAR_FILES_H_
