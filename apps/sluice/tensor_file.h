// A safetensors file as `sluice inspect` looks at it: from its header alone, or
// whole and verified.
#ifndef SLUICE_APPS_SLUICE_TENSOR_FILE_H_
#define SLUICE_APPS_SLUICE_TENSOR_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "io/checkpoints/safetensors.h"

namespace sluice::tool {

struct TensorFile {
  struct Item {
    std::string name;
    DType dtype = DType::kFloat32;
    Shape shape;
    std::optional<Tensor> values;  // not from the header alone
  };
  std::vector<Item> tensors;  // in the order of their data
  Metadata metadata;          // without the checksum
  // Whether it has a checksum, and the right one; not from the header alone.
  std::optional<bool> checksummed;
};

// Tells by the name; else by the first bytes, where there is such a file.
bool IsSafetensors(const std::string& path);

// Errors as ReadSafetensorsHeader.
Result<TensorFile> ReadHeaderOnly(const std::string& path);
// Errors as ReadSafetensors, and kDataLoss for a checkpoint of ours that lost
// its checksum.
Result<TensorFile> ReadVerified(const std::string& path);

// The text as one line of printable characters, cut where it is long.
std::string Shortened(std::string text);
// The text with spaces for control characters, which might forge lines.
std::string Printable(std::string text);

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_TENSOR_FILE_H_
