// What one row of kernel_bench measures: a kernel on operands, what they cost,
// and what the results should be.
#ifndef SLUICE_BENCH_KERNEL_BENCH_CASE_H_
#define SLUICE_BENCH_KERNEL_BENCH_CASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "engine/tensor.h"
#include "graph/graph.h"

namespace sluice::bench {

// One side of a row, ready to be run again and again on the same buffers.
struct Subject {
  std::string provider;         // "simd", "oneDNN", "loop"
  std::function<void()> run;    // empty: this side does not exist here
  std::vector<Tensor> inputs;   // as they were before the first run
  std::vector<Tensor> results;  // empty: not comparable (other layout)
};

// What element `element` of result `result` is in float64.
using Reference = std::function<double(const std::vector<Tensor>& inputs,
                                       int result, int64_t element)>;

struct Case {
  std::string suite;  // "conv"
  std::string op;     // "Conv2D"
  std::string shape;  // "[16,56,56,64] [3,3,64,64]"
  std::string pass;   // "forward", "data", "weights", "update" or empty
  double flops = 0;   // 0: bytes are what counts
  double bytes = 0;   // of all operands, each counted once
  // Allowed error, relative to the largest value looked at.
  double tolerance = 2e-5;
  int samples = 1000;  // elements of a result that are compared
  KernelSpec spec;     // of the node; empty for more than one
  // Our side by the named provider's kernel, "" for the best. Throws Error.
  std::function<Subject(const std::string& provider)> make;
  // Our side's inputs alone.
  std::function<std::vector<Tensor>()> make_inputs;
  // The peer on the same inputs; null: none.
  std::function<Subject(const Subject& ours)> make_peer;
  Reference reference;

  std::string Name() const;  // "conv Conv2D [16,...] forward"
};

// Changes input i of a case from its default: floats uniform on [-1, 1),
// integers 0, bools every other one.
using EditInput = std::function<void(int i, Tensor& value)>;

// A case for the kernels of one node. Its graph is not needed afterwards.
// Results are the node's outputs, or the variables that it updates.
Case CaseOf(const std::string& suite, const std::string& pass, const Node& node,
            const EditInput& edit = nullptr);

// What ResNet-50 is measured with: on the CPU, and on a GPU, whose L2 cache
// holds whole activations of a small batch.
inline constexpr int64_t kImages = 16, kImagesOnGpu = 256;

// Every case of every suite, in the order they are printed; those of ResNet-50
// with so many images.
std::vector<Case> AllCases(int64_t images = kImages);

// The suites.
std::vector<Case> GemmCases();
std::vector<Case> ConvCases(int64_t images);
std::vector<Case> ElementwiseCases(int64_t images);
std::vector<Case> ChainCases();
std::vector<Case> ReductionCases(int64_t images);
std::vector<Case> SoftmaxCases();
std::vector<Case> NormCases(int64_t images);
std::vector<Case> PoolCases(int64_t images);
std::vector<Case> OptimizerCases();
std::vector<Case> MemcpyCases();

// The largest error over a sample of every result's elements, relative to the
// largest value looked at; infinite if a result holds anything that is not
// finite.
double ErrorOf(const Case& c, const Subject& subject,
               const std::vector<Tensor>& inputs);

// Element i of a float32 tensor.
inline double F(const Tensor& t, int64_t i) {
  return static_cast<double>(t.data<float>()[i]);
}

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_KERNEL_BENCH_CASE_H_
