// Walks the table of ops and tries each on its probes: shapes against what the
// kernels write, every kernel against the reference, every dtype against the
// widest, and the traits that the record claims.
// tests/graph/ops/op_gradient_test.cc does the same for gradients. A new op is
// tested by being defined.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/threads.h"
#include "tests/support/guarded_run.h"
#include "tests/support/op_check.h"

namespace sluice::testing {
namespace {

// Draws random numbers: results of different dtypes need not agree.
bool Random(const OpDef& op) {
  return op.stateful && op.mutates == 0;
}

std::vector<const KernelDef*> KernelsFor(const KernelSpec& spec) {
  return KernelTable::Global().FindAll(spec, DeviceType::kCpu);
}

// Everything one kernel must do on one case. Returns its results.
std::vector<Tensor> CheckKernel(const ProbeCase& c, const KernelSpec& spec,
                                const KernelDef& def, const std::string& where,
                                Faults& faults) {
  const OpDef& op = c.node->op();
  const std::string who = where + ", kernel " + def.provider;
  Result<KernelPtr> made = def.make(spec);
  if (!made.ok()) {
    faults.Add(who + ": " + made.status().message());
    return {};
  }
  Kernel& kernel = **made;
  const GuardedRunResult run =
      GuardedRun(kernel, spec, c.values, c.node->mutates());
  const auto check = [&](const GuardedRunResult& result) {
    if (!result.fault.empty()) faults.Add(who + ": " + result.fault);
  };
  check(run);
  const GuardedRunResult again =
      GuardedRun(kernel, spec, c.values, c.node->mutates(), {.fill = 0x37});
  check(again);
  if (!SameBits(run.tensors, again.tensors)) {
    faults.Add(who + ": leaves elements unwritten, or differs from run to run");
  }
  for (int i : op.inplace) {
    if (i >= c.node->num_inputs() ||
        spec.inputs[i].bytes() != spec.outputs[0].bytes()) {
      continue;
    }
    const GuardedRunResult in_place =
        GuardedRun(kernel, spec, c.values, c.node->mutates(), {.in_place = i});
    check(in_place);
    if (!SameBits(run.tensors, in_place.tensors)) {
      faults.Add(fmt::format("{}: wrong in place of input {}", who, i));
    }
  }
  return run.tensors;
}

// Every kernel on one case. Returns the reference's results.
std::vector<Tensor> CheckKernels(const ProbeCase& c, const std::string& where,
                                 Faults& faults) {
  const KernelSpec spec = SpecOf(*c.node, /*deterministic=*/false);
  for (const TensorType& type : spec.outputs) {
    if (!type.shape.concrete()) {
      faults.Add(where + ": the shape function leaves " + type.ToString());
      return {};
    }
  }
  const std::vector<const KernelDef*> kernels = KernelsFor(spec);
  if (kernels.empty()) {
    faults.Add(where + ": no kernel");
    return {};
  }
  std::vector<Tensor> wanted =
      CheckKernel(c, spec, *kernels.back(), where, faults);
  for (size_t k = 0; k + 1 < kernels.size() && !wanted.empty(); ++k) {
    const std::vector<Tensor> got =
        CheckKernel(c, spec, *kernels[k], where, faults);
    const std::string difference =
        Difference(got, wanted, AllowanceFor(spec, c.values));
    if (!difference.empty()) {
      faults.Add(fmt::format("{}, kernel {} against reference: {}", where,
                             kernels[k]->provider, difference));
    }
  }
  return wanted;
}

// The results of the best kernel, as they are. None are a fault: an op has a
// kernel for every binding of its types, deterministic or not.
std::vector<Tensor> Results(const ProbeCase& c, const std::string& where,
                            Faults& faults, bool deterministic = false) {
  const KernelSpec spec = SpecOf(*c.node, deterministic);
  const std::vector<const KernelDef*> kernels = KernelsFor(spec);
  const std::string who = where + (deterministic ? ", deterministic" : "");
  if (kernels.empty()) {
    faults.Add(who + ": no kernel");
    return {};
  }
  Result<KernelPtr> kernel = kernels.front()->make(spec);
  if (!kernel.ok()) {
    faults.Add(who + ": " + kernel.status().message());
    return {};
  }
  GuardedRunResult run =
      GuardedRun(**kernel, spec, c.values, c.node->mutates());
  if (run.fault.empty()) return std::move(run.tensors);
  faults.Add(who + ": " + run.fault);
  return {};
}

// Where the float64 result is an integer the int64 one is the same; elsewhere
// it is rounded somehow. What floats cannot hold is left out.
std::string RoundedDifference(const std::vector<Tensor>& integers,
                              const std::vector<Tensor>& floats) {
  if (integers.size() != floats.size()) return "other numbers of outputs";
  for (size_t k = 0; k < integers.size(); ++k) {
    if (integers[k].shape() != floats[k].shape()) return "shapes differ";
    for (int64_t i = 0; i < integers[k].elements(); ++i) {
      const double y = floats[k].At(i);
      if (!std::isfinite(y) || std::abs(y) > 9e15) continue;
      const double error = std::abs(integers[k].At(i) - y);
      if (y == std::floor(y) ? error > 0 : error >= 1) {
        return fmt::format("output {}[{}] is {}, float64 gives {}", k, i,
                           integers[k].At(i), y);
      }
    }
  }
  return "";
}

// One binding of dtypes on one probe, against the same values in wider types.
void CheckBinding(const OpDef& op, const Probe& probe,
                  const TypeBinding& binding, const std::string& where,
                  Faults& faults) {
  TypeBinding wider = WidestBinding(op);
  bool to_floats = false;
  for (const TypeVar& var : op.types) {
    const DType dtype = binding.at(var.name);
    if (HasNonFinite(probe) && !IsFloating(dtype)) return;
    if (IsInteger(dtype) && var.allowed.Contains(DType::kInt64)) {
      to_floats |= dtype == DType::kInt64 && wider[var.name] != dtype;
      if (dtype != DType::kInt64) wider[var.name] = DType::kInt64;
    }
  }
  const ProbeCase c = MakeProbeCase(op, probe, binding);
  const std::vector<Tensor> got = CheckKernels(c, where, faults);
  if (Random(op) || got.empty()) return;

  ProbeCase reference = MakeProbeCase(op, probe, wider);
  for (size_t i = 0; i < c.values.size(); ++i) {
    reference.values[i] = c.values[i].Cast(reference.values[i].dtype());
  }
  std::vector<Tensor> wanted =
      Results(reference, where + " in " + ToString(wider), faults);
  if (wanted.empty()) return;  // a fault already
  std::string difference;
  if (to_floats) {
    difference = RoundedDifference(got, wanted);
  } else {
    for (size_t k = 0; k < got.size(); ++k) {
      // Integers of fewer bits wrap around.
      if (!IsFloating(got[k].dtype())) {
        wanted[k] = wanted[k].Cast(got[k].dtype());
      }
    }
    const KernelSpec spec = SpecOf(*c.node, /*deterministic=*/false);
    difference = Difference(got, wanted, AllowanceFor(spec, c.values));
  }
  if (!difference.empty()) {
    faults.Add(
        fmt::format("{} against {}: {}", where, ToString(wider), difference));
  }
}

void CheckCommutes(const OpDef& op, const Probe& probe,
                   const TypeBinding& binding, const std::string& where,
                   Faults& faults) {
  const ProbeCase c = MakeProbeCase(op, probe, binding);
  const ProbeCase swapped =
      MakeProbeCase(op, probe, binding, /*swap_operands=*/true);
  const std::string difference = Difference(
      Results(c, where, faults), Results(swapped, where, faults), {});
  if (!difference.empty()) {
    faults.Add(where + ": does not commute: " + difference);
  }
}

// [3] in a probe whose largest rank is 2 becomes [1500,1,3]: elementwise ops
// allow that, and it takes more than one piece of parallel work.
Shape Enlarged(const Shape& shape, int rank) {
  if (shape.rank() == 0) return shape;
  Shape large{1500};
  for (int d = shape.rank(); d < rank; ++d) large.push_back(1);
  for (int64_t d : shape) large.push_back(d);
  return large;
}

void CheckThreads(const OpDef& op, const Probe& probe,
                  const TypeBinding& binding, const std::string& where,
                  Faults& faults) {
  const ProbeCase c = MakeProbeCase(op, probe, binding, false,
                                    op.elementwise ? Enlarged : nullptr);
  SetComputeThreads(1);
  const std::vector<Tensor> one =
      Results(c, where, faults, /*deterministic=*/true);
  SetComputeThreads(2);
  const std::vector<Tensor> two =
      Results(c, where, faults, /*deterministic=*/true);
  if (!SameBits(one, two)) {
    faults.Add(where + ": the bits depend on the number of threads");
  }
}

// A view's bytes are its input's.
void CheckView(const OpDef& op, const Probe& probe, Faults& faults) {
  const ProbeCase c = MakeProbeCase(op, probe, WidestBinding(op));
  const TensorType& x = c.node->input(0).type();
  const TensorType& y = c.node->output_type(0);
  if (x.dtype != y.dtype || x.bytes() != y.bytes()) {
    faults.Add(
        fmt::format("a view of {} cannot be {}", x.ToString(), y.ToString()));
  }
}

void CheckOp(const OpDef& op, Faults& faults) {
  if (op.gradient == nullptr) faults.Add("no gradient, nor the marker");
  if (!NeedsProbe(op)) return;
  if (op.probes.empty()) faults.Add("no probe");
  for (int p = 0; p < op.probes.size(); ++p) {
    const Probe& probe = op.probes[p];
    if (op.view) {
      CheckView(op, probe, faults);
      continue;
    }
    const TypeBinding widest = WidestBinding(op);
    const std::string where = fmt::format("probe {}", p);
    CheckKernels(MakeProbeCase(op, probe, widest), where, faults);
    const std::vector<OtherCase> emptied = EmptiedCases(op, probe, widest);
    for (const OtherCase& e : emptied) {
      CheckKernels(e.c, where + ", " + e.what, faults);
    }
    for (const OtherCase& many : ManyCases(op, probe, widest)) {
      CheckKernels(many.c, where + ", " + many.what, faults);
    }
    // All dimensions of an elementwise op may be 0.
    if (op.elementwise && emptied.empty() && !Resized(op, probe, 0).empty()) {
      faults.Add(where + ": refuses all that is empty");
    }
    if (op.commutative) CheckCommutes(op, probe, widest, where, faults);
    CheckThreads(op, probe, widest, where, faults);
    for (const TypeBinding& binding : OtherBindings(op)) {
      const std::string narrow = where + " " + ToString(binding);
      CheckBinding(op, probe, binding, narrow, faults);
      bool float32 = false;
      for (const auto& [name, dtype] : binding) {
        float32 |= dtype == DType::kFloat32;
      }
      if (float32) CheckThreads(op, probe, binding, narrow, faults);
    }
  }
}

Faults FaultsOf(const OpDef& op) {
  Faults faults;
  try {
    CheckOp(op, faults);
  } catch (const Error& error) {
    faults.Add(error.what());
  }
  return faults;
}

TEST_CASE("every op does what its record says") {
  for (const OpDef* op : OpTable::Global().All()) {
    const std::string name(op->name);
    if (name.starts_with("Faulty")) continue;
    const Faults faults = FaultsOf(*op);
    CHECK_MESSAGE(faults.empty(), name << ":" << faults.ToString());
  }
  SetComputeThreads(0);
}

// --- The walk finds faults ---------------------------------------------------

// An op y = 2 x, with one kernel `run` for every dtype.
OpDef Doubling(const char* name) {
  return {.name = name,
          .doc = "Made wrong on purpose.",
          .inputs = {{"x"}},
          .gradient = NotDifferentiable,
          .probes = {{.inputs = {{.shape = {5}, .lo = 1, .hi = 2}}}}};
}

template <typename Fn>
void RegisterKernel(const char* op, Fn run, int priority = 0) {
  KernelTable::Global().Register(
      {.op = op,
       .priority = priority,
       .make = [run](const KernelSpec& spec) -> Result<KernelPtr> {
         const bool empty = spec.inputs[0].shape.elements() == 0;
         return DispatchFloating(
             spec.inputs[0].dtype,
             [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
               return KernelOf([=](const KernelContext& c) {
                 if (!empty) run(c.input<T>(0), c.output<T>(0));
               });
             });
       }});
}

template <typename T>
T Twice(T x) {
  return T(ComputeType<T>(2) * ComputeType<T>(x));
}

auto CorrectDoubling() {
  return [](auto* x, auto* y) {
    for (int i = 0; i < 5; ++i) y[i] = Twice(x[i]);
  };
}

std::string FaultsOfNew(const OpDef& op) {
  OpTable::Global().Register(op);
  return FaultsOf(op).ToString();
}

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != text.npos;
}

TEST_CASE("a correct op has no fault") {
  RegisterKernel("FaultyNowhere", CorrectDoubling());
  CHECK(FaultsOfNew(Doubling("FaultyNowhere")) == "");
}

TEST_CASE("the walk finds missing parts of a record") {
  OpDef op = Doubling("FaultyRecord");
  CHECK(Contains(FaultsOfNew(op), "no kernel"));
  op.gradient = nullptr;
  CHECK(Contains(FaultsOf(op).ToString(), "no gradient"));
  op.probes = {};
  CHECK(Contains(FaultsOf(op).ToString(), "no probe"));
}

TEST_CASE("the walk finds writes beyond a buffer") {
  RegisterKernel("FaultyOverrun", [](auto* x, auto* y) {
    for (int i = 0; i < 6; ++i) y[i] = Twice(x[i % 5]);
  });
  CHECK(Contains(FaultsOfNew(Doubling("FaultyOverrun")), "outside output 0"));
}

TEST_CASE("the walk finds elements left unwritten") {
  RegisterKernel("FaultyGap", [](auto* x, auto* y) {
    for (int i = 0; i < 4; ++i) y[i] = Twice(x[i]);
  });
  CHECK(Contains(FaultsOfNew(Doubling("FaultyGap")), "unwritten"));
}

TEST_CASE("the walk finds a kernel that differs from the reference") {
  RegisterKernel("FaultyKernel", CorrectDoubling());
  RegisterKernel(
      "FaultyKernel",
      [](auto* x, auto* y) {
        CorrectDoubling()(x, y);
        y[3] = x[3];
      },
      10);
  CHECK(Contains(FaultsOfNew(Doubling("FaultyKernel")), "against reference"));
}

TEST_CASE("the walk finds a dtype that is computed differently") {
  RegisterKernel("FaultyDtype", []<typename T>(const T* x, T* y) {
    CorrectDoubling()(x, y);
    if (sizeof(T) == 4) y[2] = x[2];
  });
  CHECK(Contains(FaultsOfNew(Doubling("FaultyDtype")), "T=float32 against"));
}

TEST_CASE("the walk finds small results that are computed differently") {
  RegisterKernel("FaultySmall", []<typename T>(const T* x, T* y) {
    CorrectDoubling()(x, y);
    if (sizeof(T) == 4) y[2] = x[2];
  });
  OpDef op = Doubling("FaultySmall");
  op.probes = {{.inputs = {{.shape = {5}, .lo = 1e-6, .hi = 2e-6}}}};
  CHECK(Contains(FaultsOfNew(op), "T=float32 against"));
}

TEST_CASE("what is left where terms cancel is no fault") {
  RegisterKernel("FaultyNowhereElse", []<typename T>(const T* x, T* y) {
    using C = ComputeType<T>;
    for (int i = 0; i < 5; ++i) y[i] = T(C(x[i]) + C(0.1) - C(x[i]) - C(0.1));
  });
  CHECK(FaultsOfNew(Doubling("FaultyNowhereElse")) == "");
}

TEST_CASE("results differ where they are further apart than allowed") {
  using Floats = std::vector<float>;
  const auto differ = [](const Floats& got, const Floats& wanted,
                         const Allowance& allowance) {
    const bool none = Difference({Tensor::Vector<float>(got)},
                                 {Tensor::Vector<float>(wanted)}, allowance)
                          .empty();
    return !none;
  };
  CHECK_FALSE(differ({100, 2}, {100, 1}, {.relative = 0.01}));
  CHECK(differ({100, 2.5}, {100, 1}, {.relative = 0.01}));
  CHECK(differ({100, 2}, {100, 1}, {.relative = 0.01, .each = true}));
  CHECK_FALSE(differ({100, 2}, {100, 1},
                     {.relative = 0.01, .absolute = 1, .each = true}));
  CHECK(differ({100}, {INFINITY}, {.relative = 0.01, .each = true}));
  CHECK_FALSE(differ({INFINITY, NAN}, {INFINITY, NAN}, {}));
  CHECK(differ({NAN}, {1}, {.relative = 1}));
  const Tensor one = Tensor::Scalar<float>(1);
  CHECK(Difference({}, {one}, {}) != "");
  CHECK(Difference({one}, {}, {}) != "");
  CHECK_FALSE(SameBits({}, {one}));
  CHECK_FALSE(SameBits({one}, {}));
}

TEST_CASE("the walk finds a false claim to work in place") {
  RegisterKernel("FaultyInPlace", [](auto* x, auto* y) {
    for (int i = 0; i < 5; ++i) y[i] = x[0];
    for (int i = 0; i < 5; ++i) y[i] = Twice(x[i]);
  });
  OpDef op = Doubling("FaultyInPlace");
  op.inplace = {0};
  CHECK(Contains(FaultsOfNew(op), "in place of input 0"));
}

TEST_CASE("the walk finds a kernel with no deterministic form") {
  KernelTable::Global().Register(
      {.op = "FaultyOrder",
       .make = [](const KernelSpec& spec) -> Result<KernelPtr> {
         if (spec.deterministic) return Unimplemented("adds as threads come");
         return DispatchFloating(
             spec.inputs[0].dtype,
             [&]<typename T>(TypeTag<T>) -> Result<KernelPtr> {
               const bool empty = spec.inputs[0].shape.elements() == 0;
               return KernelOf([=](const KernelContext& c) {
                 if (!empty) CorrectDoubling()(c.input<T>(0), c.output<T>(0));
               });
             });
       }});
  CHECK(Contains(FaultsOfNew(Doubling("FaultyOrder")),
                 "deterministic: adds as threads come"));
}

TEST_CASE("the walk finds a false claim to commute") {
  RegisterKernel("FaultyCommute", CorrectDoubling());
  OpDef op = Doubling("FaultyCommute");
  op.inputs = {{"a"}, {"b"}};
  op.probes = {{.inputs = {{.shape = {5}}, {.shape = {5}}}}};
  op.commutative = true;
  CHECK(Contains(FaultsOfNew(op), "does not commute"));
}

}  // namespace
}  // namespace sluice::testing
