// Speed of our matrix products against Eigen's: best of many runs, in GFLOP/s.
// Run it on a quiet machine.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/cpu_features.h"
#include "engine/tensor.h"
#include "engine/threads.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice {
namespace {

struct Product {
  const char* name;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// The layers of the mnist models at batch 100 with both their gradients, and
// squares.
constexpr Product kProducts[] = {
    {"fc1", 100, 128, 784, false, false},
    {"fc1 dW", 784, 128, 100, true, false},
    {"fc2", 100, 32, 128, false, false},
    {"fc2 dW", 128, 32, 100, true, false},
    {"fc2 dX", 100, 128, 32, false, true},
    {"fc3", 100, 10, 32, false, false},
    {"fc3 dW", 32, 10, 100, true, false},
    {"fc3 dX", 100, 32, 10, false, true},
    {"softmax", 100, 10, 784, false, false},
    {"softmax dW", 784, 10, 100, true, false},
    {"dense", 100, 1024, 3136, false, false},
    {"dense dW", 3136, 1024, 100, true, false},
    {"dense dX", 100, 3136, 1024, false, true},
    {"conv2", 19600, 64, 800, false, false},
    {"conv2 dW", 800, 64, 19600, true, false},
    {"conv1 dW", 25, 32, 78400, true, false},
    {"square 256", 256, 256, 256, false, false},
    {"square 512", 512, 512, 512, false, false},
    {"square 512 nt", 512, 512, 512, false, true},
    {"square 512 tn", 512, 512, 512, true, false},
    {"square 1024", 1024, 1024, 1024, false, false},
    {"square 1024 nt", 1024, 1024, 1024, false, true},
    {"square 1024 tn", 1024, 1024, 1024, true, false},
};

using Matrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Seconds of the fastest of the runs that fit in about `budget` seconds.
template <typename Fn>
double Best(double budget, const Fn& fn) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  double total = 0;
  for (int run = 0; run < 5 || total < budget; ++run) {
    const auto start = Clock::now();
    fn();
    const double seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

struct Figures {
  double ours = 0;  // GFLOP/s
  double eigen = 0;
};

Figures Measure(const Product& p, double budget) {
  Matrix a =
      Matrix::Random(p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
  Matrix b =
      Matrix::Random(p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
  Matrix c = Matrix::Zero(p.m, p.n);
  Gemm<float> gemm;
  gemm.m = p.m;
  gemm.n = p.n;
  gemm.k = p.k;
  gemm.transpose_a = p.transpose_a;
  gemm.transpose_b = p.transpose_b;
  gemm.a = a.data();
  gemm.lda = a.cols();
  gemm.b = b.data();
  gemm.ldb = b.cols();
  gemm.c = c.data();
  gemm.ldc = p.n;
  const std::shared_ptr<void> workspace = AllocateBuffer(GemmWorkspace(gemm));
  const double work = 2e-9 * static_cast<double>(p.m * p.n * p.k);
  Figures figures;
  figures.ours = work / Best(budget, [&] { RunGemm(gemm, workspace.get()); });
  figures.eigen = work / Best(budget, [&] {
                    if (p.transpose_a) {
                      c.noalias() = a.transpose() * b;
                    } else if (p.transpose_b) {
                      c.noalias() = a * b.transpose();
                    } else {
                      c.noalias() = a * b;
                    }
                  });
  return figures;
}

int Run(int argc, char** argv) {
  CLI::App app("Matrix products: ours against Eigen's, best of many runs");
  int threads = 1;
  double budget = 0.2;
  bool json = false;
  app.add_option("--threads", threads, "Compute threads of ours (Eigen: 1)");
  app.add_option("--seconds", budget, "Time per product and side");
  app.add_flag("--json", json, "One object per line");
  CLI11_PARSE(app, argc, argv);
  SetComputeThreads(threads);
  if (!json) {
    fmt::print("{} ({}), {} threads\n", Cpu().model, Simd().isa,
               ComputeThreads().threads());
    fmt::print("{:<16} {:>6} {:>6} {:>6} {:>9} {:>9}  GFLOP/s\n", "product",
               "m", "n", "k", "ours", "Eigen");
  }
  for (const Product& p : kProducts) {
    const Figures figures = Measure(p, budget);
    if (json) {
      const nlohmann::json line = {{"bench", "gemm"},
                                   {"product", p.name},
                                   {"m", p.m},
                                   {"n", p.n},
                                   {"k", p.k},
                                   {"threads", ComputeThreads().threads()},
                                   {"isa", Simd().isa},
                                   {"gflops", figures.ours},
                                   {"eigen_gflops", figures.eigen}};
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{:<16} {:>6} {:>6} {:>6} {:>9.1f} {:>9.1f}\n", p.name, p.m,
                 p.n, p.k, figures.ours, figures.eigen);
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::Run(argc, argv);
}
