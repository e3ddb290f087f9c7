#include "bench/kernel_bench/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/compile/evaluate.h"

namespace sluice::bench {
namespace {

// Floats repeat after a prime number of elements: quick to make, and no two
// rows or images are alike.
constexpr int64_t kPeriod = 1'000'003;

void FillRandom(Tensor& tensor, uint64_t seed) {
  float* x = tensor.data<float>();
  const int64_t n = tensor.elements();
  uint64_t state = seed * 2 + 1;
  for (int64_t i = 0; i < std::min(n, kPeriod); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x[i] = static_cast<float>(state >> 40) * 0x1p-23f - 1.0f;
  }
  for (int64_t i = kPeriod; i < n; i += kPeriod) {
    std::memcpy(x + i, x, std::min(kPeriod, n - i) * sizeof(float));
  }
}

Tensor InputOf(int i, const TensorType& type, const EditInput& edit) {
  Tensor value = Tensor::Zeros(type.dtype, type.shape);
  if (type.dtype == DType::kFloat32) FillRandom(value, i + 1);
  if (type.dtype == DType::kBool) {
    bool* x = value.data<bool>();
    for (int64_t k = 0; k < value.elements(); ++k) x[k] = k % 2 == 0;
  }
  if (edit) edit(i, value);
  return value;
}

// A kernel of the provider's, of any where that is empty; none where it has
// none.
MadeKernel MakeBy(const std::string& provider, const KernelSpec& spec) {
  const KernelTable& table = KernelTable::Global();
  if (provider.empty()) {
    return table.Make(spec, DeviceType::kCpu).ValueOrThrow();
  }
  MadeKernel made;
  for (const KernelDef* def : table.FindAll(spec, DeviceType::kCpu)) {
    if (made.def != nullptr || def->provider != provider) continue;
    made.kernel = MakeKernel(*def, spec).ValueOrThrow();
    made.def = def;
  }
  return made;
}

// The operands of a kernel as an executor would lay them out.
struct KernelRun {
  KernelPtr kernel;
  std::vector<Tensor> operands, outputs;
  std::vector<void*> in, out;
  std::shared_ptr<void> workspace;
  StepContext step;
};

std::vector<Tensor> MakeInputs(const KernelSpec& spec, const EditInput& edit) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    inputs.push_back(InputOf(static_cast<int>(i), spec.inputs[i], edit));
  }
  return inputs;
}

Subject MakeSubject(const KernelSpec& spec, int mutates, const EditInput& edit,
                    const std::string& provider) {
  Subject subject;
  MadeKernel made = MakeBy(provider, spec);
  if (made.def == nullptr) return subject;
  subject.provider = made.def->provider;
  auto run = std::make_shared<KernelRun>();
  run->kernel = std::move(made.kernel);
  subject.inputs = MakeInputs(spec, edit);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool updated = static_cast<int>(i) < mutates;
    run->operands.push_back(updated ? subject.inputs[i].Clone()
                                    : subject.inputs[i]);
    if (updated) subject.results.push_back(run->operands.back());
    run->in.push_back(run->operands.back().raw());
  }
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const TensorType& type = spec.outputs[i];
    const bool is_variable = i == 0 && mutates > 0;
    run->outputs.push_back(is_variable ? run->operands[0]
                                       : Tensor(type.dtype, type.shape));
    if (!is_variable) {
      // All ones are no number: what is left unwritten is found.
      std::memset(run->outputs[i].raw(), 0xff, type.bytes());
      subject.results.push_back(run->outputs[i]);
    }
    run->out.push_back(run->outputs.back().raw());
  }
  run->workspace = AllocateBuffer(run->kernel->workspace_bytes());
  subject.run = [run] {
    ThrowIfError(run->kernel->Run(KernelContext(
        run->in.data(), run->out.data(), run->workspace.get(), &run->step)));
  };
  return subject;
}

bool AllFinite(const Tensor& tensor) {
  if (tensor.dtype() != DType::kFloat32) return true;
  return std::all_of(tensor.values<float>().begin(),
                     tensor.values<float>().end(),
                     [](float x) { return std::isfinite(x); });
}

}  // namespace

std::string Case::Name() const {
  return fmt::format("{} {} {}{}{}", suite, op, shape, pass.empty() ? "" : " ",
                     pass);
}

Case CaseOf(const std::string& suite, const std::string& pass, const Node& node,
            const EditInput& edit) {
  const KernelSpec spec = SpecOf(node, /*deterministic=*/false);
  const int mutates = node.op().mutates;
  Case c;
  c.suite = suite;
  c.op = spec.op;
  c.pass = pass;
  for (const TensorType& type : spec.inputs) {
    if (type.shape.rank() == 0) continue;
    c.shape += (c.shape.empty() ? "" : " ") + type.shape.ToString();
    c.bytes += static_cast<double>(type.bytes());
  }
  for (const TensorType& type : spec.outputs) {
    c.bytes += static_cast<double>(type.bytes());
  }
  // The first output is variable 0; the other variables are written too.
  for (int i = 1; i < mutates; ++i) {
    c.bytes += static_cast<double>(spec.inputs[i].bytes());
  }
  c.spec = spec;
  c.make = [=](const std::string& provider) {
    return MakeSubject(spec, mutates, edit, provider);
  };
  c.make_inputs = [=] { return MakeInputs(spec, edit); };
  return c;
}

std::vector<Case> AllCases(int64_t images) {
  std::vector<Case> all;
  for (std::vector<Case>& suite :
       std::array{GemmCases(), ConvCases(images), ElementwiseCases(images),
                  ChainCases(), ReductionCases(images), SoftmaxCases(),
                  NormCases(images), PoolCases(images), OptimizerCases(),
                  MemcpyCases()}) {
    std::move(suite.begin(), suite.end(), std::back_inserter(all));
  }
  return all;
}

double ErrorOf(const Case& c, const Subject& subject,
               const std::vector<Tensor>& inputs) {
  double worst = 0;
  for (size_t r = 0; r < subject.results.size(); ++r) {
    const Tensor& result = subject.results[r];
    if (!AllFinite(result)) return std::numeric_limits<double>::infinity();
    const int64_t n = result.elements();
    const int64_t samples = std::min<int64_t>(n, c.samples);
    double error = 0, largest = 0;
    for (int64_t s = 0; s < samples; ++s) {
      // Spread over the tensor, its first and last element among them.
      const int64_t at =
          samples == n ? s
          : s + 1 == samples
              ? n - 1
              : static_cast<int64_t>(static_cast<double>(n) / samples * s);
      const double wanted = c.reference(inputs, static_cast<int>(r), at);
      error = std::max(error, std::abs(result.At(at) - wanted));
      largest = std::max(largest, std::abs(wanted));
    }
    worst = std::max(worst, largest > 0 ? error / largest : error);
  }
  return worst;
}

}  // namespace sluice::bench
