#include "bench/kernel_bench/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/kernel_bench/machine.h"
#include "engine/device.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/op.h"

namespace sluice::bench {
namespace {

using Json = nlohmann::json;

// More than any L2 cache holds, unless the device is small.
size_t FlushBytes(const Accelerator& accelerator) {
  return std::min(size_t{256} << 20, accelerator.memory().total / 16);
}

// Half types round the operands and the result once each.
double Tolerance(const Case& c, DType dtype) {
  if (dtype == DType::kFloat16) return std::max(c.tolerance, 2e-3);
  if (dtype == DType::kBFloat16) return std::max(c.tolerance, 2e-2);
  return c.tolerance;
}

// The case's spec with `dtype` for the op's type T.
KernelSpec SpecIn(const Case& c, DType dtype) {
  KernelSpec spec = c.spec;
  const OpDef& op = OpTable::Global().Get(spec.op);
  const auto convert = [&](const ArgDef& arg, TensorType& type) {
    if (std::string_view(arg.type) == "T") type.dtype = dtype;
  };
  const int inputs = static_cast<int>(spec.inputs.size());
  for (int i = 0; i < inputs; ++i) {
    convert(op.InputArg(i, inputs), spec.inputs[i]);
  }
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const size_t last = op.outputs.size() - 1;
    convert(op.outputs[static_cast<int>(std::min(i, last))], spec.outputs[i]);
  }
  spec.constants.clear();
  return spec;
}

size_t BytesOf(const std::vector<TensorType>& types) {
  size_t bytes = 0;
  for (const TensorType& type : types) bytes += type.bytes();
  return bytes;
}

// A kernel with its operands on the device.
class DeviceRun {
 public:
  DeviceRun(Accelerator& accelerator, KernelPtr kernel, const KernelSpec& spec,
            const std::vector<Tensor>& inputs)
      : memory_(&accelerator), kernel_(std::move(kernel)) {
    mutates_ = OpTable::Global().Get(spec.op).mutates;
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs_.push_back(
          memory_.Upload(inputs[i].Cast(spec.inputs[i].dtype)).ValueOrThrow());
      in_.push_back(inputs_[i].raw());
    }
    for (size_t i = 0; i < spec.outputs.size(); ++i) {
      outputs_.push_back(
          i == 0 && mutates_ > 0
              ? inputs_[0]
              : memory_.Allocate(spec.outputs[i]).ValueOrThrow());
      out_.push_back(outputs_[i].raw());
    }
    workspace_ = memory_.Allocate(kernel_->workspace_bytes()).ValueOrThrow();
    Tensor key = Tensor::Zeros(DType::kUInt8, {sizeof(StepKey)});
    key_ = memory_.Upload(key).ValueOrThrow();
    step_.stream = accelerator.stream(Accelerator::kCompute);
    step_.device_key = static_cast<const StepKey*>(key_.raw());
  }

  Kernel& kernel() { return *kernel_; }
  void Run() {
    ThrowIfError(kernel_->Run(
        KernelContext(in_.data(), out_.data(), workspace_.get(), &step_)));
  }
  // As Subject::results has them, in float32.
  std::vector<Tensor> Results() const {
    std::vector<Tensor> results;
    const auto add = [&](const Tensor& there) {
      const Tensor here = memory_.Download(there).ValueOrThrow();
      results.push_back(IsFloating(here.dtype()) ? here.Cast(DType::kFloat32)
                                                 : here);
    };
    for (int i = 0; i < mutates_; ++i) add(inputs_[i]);
    for (size_t i = mutates_ > 0 ? 1 : 0; i < outputs_.size(); ++i) {
      add(outputs_[i]);
    }
    return results;
  }

 private:
  DeviceMemory memory_;
  KernelPtr kernel_;
  int mutates_ = 0;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<void*> in_, out_;
  std::shared_ptr<void> workspace_;
  Tensor key_;
  StepContext step_;
};

class Stopwatch {
 public:
  explicit Stopwatch(Accelerator& accelerator)
      : accelerator_(accelerator),
        begin_(accelerator.MakeEvent().ValueOrThrow()),
        end_(accelerator.MakeEvent().ValueOrThrow()) {}

  // Seconds that the work added by `run` takes on the device.
  double Time(const std::function<void()>& run) {
    ThrowIfError(accelerator_.Record(begin_, Accelerator::kCompute));
    run();
    ThrowIfError(accelerator_.Record(end_, Accelerator::kCompute));
    return accelerator_.SecondsBetween(begin_, end_).ValueOrThrow();
  }

  // Of one of many runs back to back, launched as a graph if that can be, so
  // that the host is not what is measured.
  Timing Warm(const std::function<void()>& run, bool capture, double budget) {
    const double one = std::max(Time(run), 1e-6);
    const int runs = std::clamp(static_cast<int>(1e-3 / one), 1, 200);
    std::function<void()> block = [&] {
      for (int i = 0; i < runs; ++i) run();
    };
    std::unique_ptr<CapturedWork> captured;
    if (capture) {
      ThrowIfError(accelerator_.BeginCapture(Accelerator::kAlone));
      block();
      captured = accelerator_.EndCapture().ValueOrThrow();
      block = [&] { ThrowIfError(captured->Launch()); };
    }
    Timing timing =
        MedianOf([&] { return Time(block) / runs; }, budget / (one * runs));
    ThrowIfError(accelerator_.Synchronize());
    return timing;
  }

  // Of one run after something else has filled the cache.
  Timing Cold(const std::function<void()>& run,
              const std::function<void()>& flush, double budget) {
    const auto once = [&] {
      flush();
      return Time(run);
    };
    return MedianOf(once, budget / 1e-3);
  }

 private:
  // Of at least five and at most `most` times.
  static Timing MedianOf(const std::function<double()>& once, double most) {
    std::vector<double> seconds;
    const int times = std::clamp(static_cast<int>(most), 5, 200);
    for (int i = 0; i < times; ++i) seconds.push_back(once());
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](double share) {
      return seconds[static_cast<size_t>(share * (times - 1))];
    };
    return {at(0.5), (at(0.75) - at(0.25)) / at(0.5)};
  }

  Accelerator& accelerator_;
  Accelerator::Event begin_, end_;
};

// What the device does at most: of copies in bytes read and written, of
// products in operations.
struct Ceiling {
  double copy = 0, gemm = 0;  // per second; 0: could not be measured
};

Ceiling MeasureCeiling(Accelerator& accelerator, Stopwatch& stopwatch,
                       const Options& options) {
  Ceiling ceiling;
  const DeviceMemory memory(&accelerator);
  {
    const size_t bytes = 4 * FlushBytes(accelerator);
    const auto from = memory.Allocate(bytes).ValueOrThrow();
    const auto to = memory.Allocate(bytes).ValueOrThrow();
    const Timing timing = stopwatch.Warm(
        [&] {
          ThrowIfError(accelerator.CopyWithin(to.get(), from.get(), bytes));
        },
        /*capture=*/false, options.seconds);
    ceiling.copy = 2 * static_cast<double>(bytes) / timing.seconds;
  }
  constexpr int64_t kSide = 8192;
  Graph graph;
  const Output a = graph.Placeholder("a", options.dtype, {kSide, kSide});
  const Output b = graph.Placeholder("b", options.dtype, {kSide, kSide});
  const KernelSpec spec = SpecOf(MatMul(a, b).node(), false);
  Result<MadeKernel> made = KernelTable::Global().Make(spec, DeviceType::kCuda);
  // Our own kernel is a reference, no ceiling.
  if (!made.ok() || made->def->provider == "own") return ceiling;
  Tensor operand(DType::kFloat32, {kSide, kSide});
  for (int64_t i = 0; i < operand.elements(); ++i) {
    operand.data<float>()[i] = static_cast<float>(i % 1009) / 1009 - 0.5f;
  }
  DeviceRun run(accelerator, std::move(made->kernel), spec, {operand, operand});
  const Timing timing =
      stopwatch.Warm([&] { run.Run(); }, false, options.seconds);
  ceiling.gemm = 2.0 * kSide * kSide * kSide / timing.seconds;
  return ceiling;
}

struct Row {
  std::string provider, refused, verdict;  // refused: as MadeKernel has it
  Timing warm, cold;
  double bytes = 0, error = 0;
};

void Print(const Case& c, const Row& row, const Ceiling& ceiling,
           const Options& options, std::ostream& out) {
  // Of the two ceilings the one that this work meets first.
  const double by_bytes = row.bytes / ceiling.copy;
  const double by_flops = ceiling.gemm > 0 ? c.flops / ceiling.gemm : 0;
  const double share = std::max(by_bytes, by_flops) / row.cold.seconds;
  if (options.json) {
    const double error = std::isfinite(row.error) ? row.error : -1;
    out << Json{{"bench", "kernel"},
                {"device", options.device},
                {"suite", c.suite},
                {"op", c.op},
                {"shape", c.shape},
                {"pass", c.pass},
                {"dtype", NameOf(options.dtype)},
                {"provider", row.provider},
                {"refused", row.refused},
                {"seconds", row.warm.seconds},
                {"variation", row.warm.variation},
                {"cold_seconds", row.cold.seconds},
                {"gflops", c.flops / row.warm.seconds * 1e-9},
                {"gbs", row.bytes / row.cold.seconds * 1e-9},
                {"share", share},
                {"error", error},  // -1: not finite
                {"verdict", row.verdict}}
               .dump()
        << std::endl;
    return;
  }
  out << fmt::format(
             "{:<28} {:<30} {:<9} {:<9} {:>9.1f} {:>9.1f} {:>4.0f}% {:>8.1f} "
             "{:>7.0f} {:>5.0f}% {:>8.1e} {}",
             c.op, c.shape, c.pass, row.provider, row.warm.seconds * 1e6,
             row.cold.seconds * 1e6, row.cold.variation * 100,
             c.flops / row.warm.seconds * 1e-12,
             row.bytes / row.cold.seconds * 1e-9, share * 100, row.error,
             row.verdict +
                 (row.refused.empty() ? "" : "; not by " + row.refused))
      << std::endl;
}

void PrintHead(Accelerator& accelerator, const Ceiling& ceiling,
               const Options& options, std::ostream& out) {
  if (options.json) {
    out << Json{{"bench", "machine"},
                {"device", options.device},
                {"name", accelerator.Describe()},
                {"dtype", NameOf(options.dtype)},
                {"copy_gbs", ceiling.copy * 1e-9},
                {"gemm_gflops", ceiling.gemm * 1e-9}}
               .dump()
        << std::endl;
    return;
  }
  out << fmt::format(
             "{}, {}: copies {:.0f} GB/s, products {:.0f} TFLOP/s\n"
             "{:<28} {:<30} {:<9} {:<9} {:>9} {:>9} {:>5} {:>8} {:>7} {:>6} "
             "{:>8}",
             accelerator.Describe(), NameOf(options.dtype), ceiling.copy * 1e-9,
             ceiling.gemm * 1e-12, "op", "shape", "pass", "provider", "us",
             "cold us", "+-", "TFLOP/s", "GB/s", "share", "error")
      << std::endl;
}

}  // namespace

int RunCasesOn(Accelerator& accelerator, const std::vector<Case>& cases,
               const Options& options, std::ostream& out) {
  Stopwatch stopwatch(accelerator);
  const Ceiling ceiling = MeasureCeiling(accelerator, stopwatch, options);
  PrintHead(accelerator, ceiling, options, out);
  const DeviceMemory memory(&accelerator);
  const size_t flushed = FlushBytes(accelerator);
  const auto a = memory.Allocate(flushed).ValueOrThrow();
  const auto b = memory.Allocate(flushed).ValueOrThrow();
  const auto flush = [&] {
    ThrowIfError(accelerator.CopyWithin(a.get(), b.get(), flushed));
  };
  int wanted = 0, rows = 0, wrong = 0;
  for (const Case& c : cases) {
    if (!Wanted(c, options) || c.spec.op.empty()) continue;
    ++wanted;
    const KernelSpec spec = SpecIn(c, options.dtype);
    std::string refused;
    for (const KernelDef* def :
         KernelTable::Global().FindAll(spec, DeviceType::kCuda)) {
      if (!options.provider.empty() && def->provider != options.provider) {
        continue;
      }
      Result<KernelPtr> kernel = MakeKernel(*def, spec);
      if (kernel.status().code() == Code::kUnimplemented) {
        refused += fmt::format("{}{}: {}", refused.empty() ? "" : "; ",
                               def->provider, kernel.status().message());
        continue;
      }
      // What the CPU's side is given, so that both compute the same.
      Subject got = {.provider = def->provider, .inputs = c.make_inputs()};
      DeviceRun run(accelerator, std::move(kernel).ValueOrThrow(), spec,
                    got.inputs);
      run.Run();
      Row row;
      row.provider = def->provider;
      row.refused = refused;
      got.results = run.Results();
      for (size_t i = 0; i < got.inputs.size(); ++i) {
        Tensor& input = got.inputs[i];
        const DType dtype = input.dtype();
        if (spec.inputs[i].dtype == dtype) continue;
        input = input.Cast(spec.inputs[i].dtype).Cast(dtype);
      }
      row.error = ErrorOf(c, got, got.inputs);
      const bool right = row.error <= Tolerance(c, options.dtype);
      row.verdict = right ? "ok" : "WRONG";
      row.bytes =
          c.bytes *
          static_cast<double>(BytesOf(spec.inputs) + BytesOf(spec.outputs)) /
          static_cast<double>(BytesOf(c.spec.inputs) + BytesOf(c.spec.outputs));
      const auto once = [&] { run.Run(); };
      row.warm = stopwatch.Warm(once, run.kernel().why_not_captured().empty(),
                                options.seconds);
      row.cold = stopwatch.Cold(once, flush, options.seconds);
      Print(c, row, ceiling, options, out);
      ++rows;
      if (!right) ++wrong;
      if (options.provider.empty()) break;  // the best is enough
    }
  }
  if (wanted == 0) throw Error(Code::kInvalidArgument, "no row was asked for");
  if (rows == 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("no kernel{} takes {} in what was asked for",
                            options.provider.empty()
                                ? ""
                                : fmt::format(" of '{}'", options.provider),
                            NameOf(options.dtype)));
  }
  return wrong;
}

}  // namespace sluice::bench
