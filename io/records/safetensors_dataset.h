// The rows of tensors in a safetensors file (io/checkpoints/safetensors.h).
#ifndef SLUICE_IO_RECORDS_SAFETENSORS_DATASET_H_
#define SLUICE_IO_RECORDS_SAFETENSORS_DATASET_H_

#include <string>
#include <vector>

#include "engine/visibility.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

struct SafetensorsOptions {
  // The tensors that become features, by name. Empty: all.
  std::vector<std::string> names = {};
  // How many threads read examples, as in MapOptions.
  int threads = 1;
};

namespace datasets {

// Example i has row i of each tensor: float32[100,3] becomes 100 examples of
// float32[3]. First dimensions must agree. An example is read when it is
// needed, a range of the file for each tensor, in any order: a Shuffle of all
// holds numbers, and the file need not fit into memory. It stays open.
//
// Throws Error: of ReadSafetensorsHeader; kNotFound for a name that is not
// there; kInvalidArgument where a tensor has no rows (shape []), where two have
// different numbers of them, or where there are no tensors. An iterator returns
// kDataLoss, naming the file, the tensor and the row, where the file has become
// shorter or a BOOL is neither 0 nor 1. A checksum of the whole file is not
// looked at. Positions are restored with a file of the same name, without its
// folder, size and first 64 KiB.
Dataset Safetensors(const std::string& path,
                    const SafetensorsOptions& options = {});

}  // namespace datasets
}  // namespace sluice

#endif  // SLUICE_IO_RECORDS_SAFETENSORS_DATASET_H_
