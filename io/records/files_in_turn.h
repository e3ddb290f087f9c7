// A dataset of files that are each read from the first byte to the last.
// Internal to io.
#ifndef SLUICE_IO_RECORDS_FILES_IN_TURN_H_
#define SLUICE_IO_RECORDS_FILES_IN_TURN_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "io/records/file_datasets.h"
#include "io/sources/datasets.h"

namespace sluice {

// Tells sets of files apart: a checksum of their names without their folders,
// their sizes and first 64 KiB. Throws Error where one cannot be read.
std::string IdentityOfFiles(const std::vector<std::string>& paths);

// The examples that open(i) yields of the i-th path, for all paths in the order
// that the options say. A file must yield the same in every epoch. Positions
// are restored with the same `what` and files of the same identity.
Dataset FilesInTurn(
    const std::string& what, const std::vector<std::string>& paths,
    const FileOptions& options,
    const std::function<std::unique_ptr<Generator>(size_t i)>& open);

}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_FILES_IN_TURN_H_
