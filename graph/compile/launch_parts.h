// Helpers shared by the files that count a GPU's launches (launches.h), and
// functions of one that another calls. Internal to them.
#ifndef SLUICE_GRAPH_COMPILE_LAUNCH_PARTS_H_
#define SLUICE_GRAPH_COMPILE_LAUNCH_PARTS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "graph/compile/launches.h"

namespace sluice {

using Launches = std::vector<KernelLaunch>;

// All bytes of input i, or of output i, read and written so many times.
inline Moved In(int i, int reads = 1, int writes = 0) {
  return {false, i, reads, writes};
}
inline Moved Out(int i, int writes = 1, int reads = 0) {
  return {true, i, reads, writes};
}

// Elements in 16 bytes; whether rows of input 0 are whole packs of so many.
inline int64_t PackOf(DType dtype) {
  return 16 / static_cast<int64_t>(SizeOf(dtype));
}
inline bool IsWhole(const Node& node, int64_t pack) {
  return node.input(0).shape()[-1] % pack == 0;
}

// "kernel<float, true, false>".
std::string Named(std::string_view kernel, DType dtype,
                  std::initializer_list<bool> flags);

// Count the launches of normalisations (launches_norm.cc).
void CountBatchNorm(const Node& node, WorkKind kind, Launches* launches);
void CountBatchNormBySums(const Node& node, WorkKind kind, Launches* launches);
// Also BatchNormApply.
void CountBatchNormInference(const Node& node, WorkKind kind,
                             Launches* launches);
void CountBatchNormGrad(const Node& node, WorkKind kind, Launches* launches);
void CountLayerNormGrad(const Node& node, WorkKind kind, Launches* launches);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_LAUNCH_PARTS_H_
