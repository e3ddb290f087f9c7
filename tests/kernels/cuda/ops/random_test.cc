// The CUDA kernels of random tensors and dropout, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/semantics/random.h"
#include "kernels/cuda/ops/random.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

constexpr StepKey kKey = {
    .seed = 0x123456789abcdef0u, .step = uint64_t{7} << 33, .replica = 3};
constexpr const char* kName = "net/noise";

// What the CPU's reference draws in a step of this key.
std::vector<Tensor> Wanted(const KernelSpec& spec,
                           const std::vector<Tensor>& inputs) {
  testing::GuardedRunOptions options;
  static_cast<StepKey&>(options.step) = kKey;
  const auto all = KernelTable::Global().FindAll(spec, DeviceType::kCpu);
  const KernelPtr kernel = all.back()->make(spec).ValueOrThrow();
  return testing::GuardedRun(*kernel, spec, inputs, 0, options).tensors;
}

// A copy of the key where kernels read it.
DeviceBuffer DeviceKey() {
  DeviceBuffer key(sizeof(StepKey));
  *key.as<StepKey>() = kKey;
  return key;
}

// From element `first` of the stream on.
void CheckDraw(const std::string& op, DType dtype, int64_t n, double a,
               double b, size_t skip = 0, int64_t first = 0) {
  const bool uniform = op == "RandomUniform";
  KernelSpec spec{.op = op, .origin = kName};
  spec.attrs = {{"dtype", dtype},
                {uniform ? "lo" : "mean", a},
                {uniform ? "hi" : "stddev", b},
                {"first", first}};
  spec.inputs = {{DType::kInt64, {1}}};
  spec.outputs = {{dtype, {n}}};
  const Tensor wanted =
      Wanted(spec, {Tensor::Vector<int64_t>(std::vector<int64_t>{n})}).front();
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer key = DeviceKey(), y(wanted.bytes(), skip);
        const DrawParams params = {
            HashName(kName),     a,    b, Number(a).integer(),
            Number(b).integer(), first};
        CHECK(
            FindDraw(op, dtype)(params, key.as<StepKey>(), y.get(), n, nullptr)
                .ok());
        return std::vector{y.Read(dtype, {n})};
      }).front();
  CHECK_MESSAGE(got.BitEqual(wanted), op, " of ", std::string(NameOf(dtype)),
                ": ", Difference(got, wanted, 0));
}

TEST_CASE("random numbers have the bits of the CPU's") {
  for (DType dtype : kFloatTypes) {
    for (int64_t n : {1, 7, 3001}) {
      CheckDraw("RandomUniform", dtype, n, -0.3, 0.7);
      CheckDraw("RandomNormal", dtype, n, 0.5, 2);
      CheckDraw("TruncatedNormal", dtype, n, 0, 0.1);
      for (const int64_t first : {kRandomAlignment, int64_t{1} << 34}) {
        CheckDraw("RandomUniform", dtype, n, -0.3, 0.7, 0, first);
        CheckDraw("RandomNormal", dtype, n, 0.5, 2, 0, first);
        CheckDraw("TruncatedNormal", dtype, n, 0, 0.1, 0, first);
      }
    }
    CheckDraw("RandomUniform", dtype, 50, 0, 1, SizeOf(dtype));
  }
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    CheckDraw("RandomUniform", dtype, 1003, -7, 1000);
    CheckDraw("RandomUniform", dtype, 1003, -7, 1000, 0, 8 * kRandomAlignment);
    CheckDraw("RandomUniform", dtype, 1003, 0, 0x1p31, SizeOf(dtype));
  }
  // A range beyond int64.
  CheckDraw("RandomUniform", DType::kInt64, 1003, -0x1p63, 0x1p62);
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    CheckDraw("RandomUniform", dtype, 7, -1, 0);
  }
}

TEST_CASE("rounding does not reach the end of the interval") {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    CheckDraw("RandomUniform", dtype, 5000, 0, 1);
    CheckDraw("RandomUniform", dtype, 5000, -1, 0);
  }
}

TEST_CASE("there are no kernels of other dtypes") {
  const bool found = FindDraw("RandomNormal", DType::kInt32) != nullptr ||
                     FindDraw("RandomUniform", DType::kUInt8) != nullptr ||
                     FindDropout(DType::kInt32) != nullptr;
  CHECK(!found);
}

void CheckDropout(DType dtype, int64_t n, size_t skip, bool in_place) {
  const double rate = 0.3;
  const Tensor x = RandomTensor(dtype, {n}, -2, 2);
  KernelSpec spec{.op = "Dropout", .origin = kName};
  spec.attrs = {{"rate", rate}};
  spec.inputs = {{dtype, {n}}};
  spec.outputs = {{dtype, {n}}, {DType::kBool, {n}}};
  const std::vector<Tensor> wanted = Wanted(spec, {x});
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer key = DeviceKey(), in(x, skip), own(x.bytes(), skip);
    const DeviceBuffer& y = in_place ? in : own;
    const DeviceBuffer mask(static_cast<size_t>(n), skip == 0 ? 0 : 1);
    CHECK(FindDropout(dtype)({HashName(kName), rate}, key.as<StepKey>(),
                             in.get(), y.get(), mask.as<bool>(), n, nullptr)
              .ok());
    return std::vector{y.Read(dtype, {n}), mask.Read(DType::kBool, {n})};
  });
  CHECK(got[0].BitEqual(wanted[0]));
  CHECK(got[1].BitEqual(wanted[1]));

  const Tensor dy = RandomTensor(dtype, {n}, -2, 2, 8);
  spec.op = "DropoutGrad";
  spec.inputs = {{dtype, {n}}, {DType::kBool, {n}}};
  spec.outputs = {{dtype, {n}}};
  const Tensor dx = Wanted(spec, {dy, wanted[1]}).front();
  const Tensor got_dx =
      InEveryOrder([&] {
        const DeviceBuffer in(dy, skip), own(dy.bytes(), skip);
        const DeviceBuffer& out = in_place ? in : own;
        const DeviceBuffer mask(wanted[1], skip == 0 ? 0 : 1);
        CHECK(FindDropoutGrad(dtype)(rate, in.get(), mask.as<bool>(), out.get(),
                                     n, nullptr)
                  .ok());
        return std::vector{out.Read(dtype, {n})};
      }).front();
  CHECK(got_dx.BitEqual(dx));
}

TEST_CASE("dropout drops what the CPU drops") {
  for (DType dtype : kFloatTypes) {
    CheckDropout(dtype, 3001, 0, false);
    CheckDropout(dtype, 64, SizeOf(dtype), false);
    CheckDropout(dtype, 77, 0, true);
  }
}

}  // namespace
}  // namespace sluice::cuda
