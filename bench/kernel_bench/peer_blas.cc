// OpenBLAS, loaded while running: Debian's libopenblas0-pthread or -openmp.
#include <dlfcn.h>

#include "bench/kernel_bench/peers.h"
#include "engine/threads.h"

namespace sluice::bench {
namespace {

using Gemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n,
                      int k, float alpha, const float* a, int lda,
                      const float* b, int ldb, float beta, float* c, int ldc);
using SetThreads = void (*)(int);

struct Library {
  Gemm gemm = nullptr;
  SetThreads set_threads = nullptr;
};

const Library& OpenBlas() {
  static const Library library = [] {
    Library found;
    void* handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return found;
    found.gemm = reinterpret_cast<Gemm>(dlsym(handle, "cblas_sgemm"));
    found.set_threads =
        reinterpret_cast<SetThreads>(dlsym(handle, "openblas_set_num_threads"));
    return found;
  }();
  return library;
}

}  // namespace

Subject BlasProduct(const KernelSpec& spec, const Subject& ours) {
  const Library& library = OpenBlas();
  Subject peer;
  if (library.gemm == nullptr) return peer;
  if (library.set_threads != nullptr) {
    library.set_threads(ComputeThreads().threads());
  }
  const bool ta = spec.attrs.Bool("transpose_a");
  const bool tb = spec.attrs.Bool("transpose_b");
  const Tensor a = ours.inputs[0], b = ours.inputs[1];
  Tensor c = Tensor::Zeros(DType::kFloat32, spec.outputs[0].shape);
  const int m = static_cast<int>(c.shape()[0]);
  const int n = static_cast<int>(c.shape()[1]);
  const int k = static_cast<int>(a.shape()[ta ? 0 : 1]);
  peer.provider = "OpenBLAS";
  peer.results = {c};
  peer.run = [=, gemm = library.gemm]() mutable {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    gemm(kRowMajor, ta ? kTransposed : kPlain, tb ? kTransposed : kPlain, m, n,
         k, 1.0f, a.data<float>(), ta ? m : k, b.data<float>(), tb ? k : n,
         0.0f, c.data<float>(), n);
  };
  return peer;
}

}  // namespace sluice::bench
