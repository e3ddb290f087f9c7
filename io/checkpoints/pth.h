// Reader of the files that PyTorch's torch.save writes since 1.6, .pth and .pt
// (torch/serialization.py and caffe2/serialize/inline_container.h):
//
//   file      := zip archive of stored entries below one folder of any name
//   data.pkl  := pickle of the saved object; a tensor in it is the call of
//                torch._utils._rebuild_tensor_v2(storage, offset, sizes,
//                strides, ...), in elements, where storage stands outside as
//                ("storage", type, key, device, elements)
//   data/KEY  := a storage's elements
//   byteorder := "little" | "big"; since 2.1
//
// No Python runs: names in the pickle that are not known here are passed over
// with what they would make.
#ifndef SLUICE_IO_CHECKPOINTS_PTH_H_
#define SLUICE_IO_CHECKPOINTS_PTH_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "io/checkpoints/safetensors.h"
#include "io/files/file.h"

namespace sluice {

// Does a file that starts so look like torch.save's? Any zip archive does.
bool IsPth(std::string_view first_bytes);

// The tensors of a state dict, in its order and under its keys, row-major
// whatever their strides were. The saved object is the state dict, or a dict
// (a checkpoint of a training script) that has one under "state_dict" or
// "model". What is no tensor in it is passed over. The tensors own their
// memory, also where they shared a storage; at most 16 times the file's bytes
// and 16 MiB are taken.
//
// kDataLoss, naming the file and what is wrong, for anything malformed,
// checksums included; kUnimplemented for what DType lacks, sparse and quantized
// tensors, objects other than a state dict, big-endian and compressed files,
// and those of PyTorch before 1.6.
Result<std::vector<NamedTensor>> ReadPth(
    const std::string& path, FileSystem& files = FileSystem::Default());
// ReadPth of a file's bytes in memory; `path` is only for messages.
Result<std::vector<NamedTensor>> ParsePth(std::string_view bytes,
                                          const std::string& path);

}  // namespace sluice

#endif  // SLUICE_IO_CHECKPOINTS_PTH_H_
