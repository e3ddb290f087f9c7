// Counts the work of a GPU's kernels for a node from its shapes: the launches,
// the bytes they read and write, the multiplications. For plans that are not
// run (/null:0), and for comparison with measurements.
//
// What our own kernels are said to do here is held against them in the
// emulation: how many there are for every op (op_table_test), and the bytes of
// those that move the most (traffic_test). Of cuDNN and cuBLASLt it is assumed
// that they read every operand once, write the result once and launch once; a
// ReLU behind cuBLASLt's product is a launch of ours.
#ifndef SLUICE_GRAPH_COMPILE_LAUNCHES_H_
#define SLUICE_GRAPH_COMPILE_LAUNCHES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_INTERNAL sluice {

enum class WorkKind : uint8_t {
  kConvolution,
  kDataGradient,    // of a convolution
  kFilterGradient,  // of a convolution
  kBatchNorm,
  kBatchNormGrad,
  kElementwise,
  kPooling,
  kProduct,  // of matrices
  kOptimizer,
  kCopy,  // also casts and transposes
  kOther,
};
inline constexpr int kWorkKinds = 11;
std::string_view NameOf(WorkKind kind);  // "data_gradient"

// How often a kernel reads and writes all bytes of one of a node's tensors.
struct Moved {
  bool result = false;  // an output, else an input
  int index = 0;
  int reads = 0, writes = 0;
};

// A kernel, or a copy: one node of the graph that a step is captured as.
struct KernelLaunch {
  WorkKind kind = WorkKind::kOther;
  // The kernel's name in kernels/cuda/sass_limits.txt, if it is there:
  // "GradKernel<__half, true>"; else kLibrary, kMemcpy, or some name.
  std::string kernel;
  std::vector<Moved> moved = {};
  // Bytes moved beside `moved`, such as for a filter that is brought into
  // another layout.
  int64_t extra_bytes = 0;
  int64_t multiply_adds = 0;

  int64_t Bytes(const Node& node) const;
};
inline constexpr std::string_view kLibrary = "library";
inline constexpr std::string_view kMemcpy = "memcpy";

// The launches of a node in their order; none if it runs nothing. Requires
// concrete shapes.
std::vector<KernelLaunch> LaunchesOf(const Node& node);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_LAUNCHES_H_
