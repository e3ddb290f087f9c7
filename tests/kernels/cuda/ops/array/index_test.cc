// The CUDA kernels that take positions as data, emulated, against the CPU's.
#include "kernels/cuda/ops/array/index.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/ops/array/sorted_rows.h"
#include "kernels/cuda/ops/array/sum_rows.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

using testing::CpuResults;
using testing::DeviceBuffer;
using testing::Difference;
using testing::InEveryOrder;
using testing::RandomTensor;

// n positions below `limit`, many of them the same.
Tensor Positions(DType dtype, int64_t n, int64_t limit) {
  Tensor positions(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) {
    positions.data<int64_t>()[i] = (i * i + i / 3) % limit;
  }
  return positions.Cast(dtype);
}

struct GatherCase {
  DType dtype = DType::kFloat32;
  DType index = DType::kInt64;
  GatherShape s;
  size_t skip = 0;
  bool in_place = false;

  Shape params() const { return {s.batch, s.middle, s.size, s.inner}; }
  Shape result() const { return {s.batch, s.middle, s.count, s.inner}; }
  Attributes attrs() const {
    return {{"axis", int64_t{2}}, {"batch_dims", int64_t{1}}};
  }
  Tensor indices() const {
    const Tensor flat = Positions(index, s.batch * s.count, s.size);
    Tensor shaped(index, {s.batch, s.count});
    std::copy_n(static_cast<const char*>(flat.raw()), flat.bytes(),
                static_cast<char*>(shaped.raw()));
    return shaped;
  }
};

void CheckGather(const GatherCase& c) {
  const Tensor params = RandomTensor(c.dtype, c.params(), -9, 9);
  const Tensor indices = c.indices();
  const Tensor wanted = CpuResults("Gather", c.attrs(), {params, indices},
                                   {{c.dtype, c.result()}})
                            .front();
  const Tensor got = InEveryOrder([&] {
                       const DeviceBuffer in(params, c.skip), at(indices);
                       const DeviceBuffer y(wanted.bytes(), c.skip);
                       CHECK(Gather(c.s, c.dtype, in.get(), c.index, at.get(),
                                    y.get(), nullptr, nullptr)
                                 .ok());
                       return std::vector{y.Read(c.dtype, c.result())};
                     }).front();
  CHECK(got.BitEqual(wanted));
}

TEST_CASE("gathers of any element size, in units up to 16 bytes") {
  for (DType dtype :
       {DType::kBool, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (DType index : {DType::kInt32, DType::kInt64}) {
      CheckGather({dtype, index, {2, 3, 7, 11, 16}});
      CheckGather({dtype, index, {2, 1, 7, 40, 3}});
      CheckGather({dtype, index, {1, 2, 5, 9, 16}, SizeOf(dtype)});
    }
  }
  CheckGather({.s = {1, 1, 50, 300, 1}});
}

// Half sums are rounded once here, after every term on the CPU; others are
// taken in another order, and differ by some units: more for more terms.
void CheckScatter(const GatherCase& c, double units = 4) {
  const Tensor x = RandomTensor(c.dtype, c.params(), -2, 2);
  const Tensor updates = RandomTensor(c.dtype, c.result(), -2, 2, 3);
  const Tensor indices = c.indices();
  const bool half = SizeOf(c.dtype) == 2;
  const auto widen = [&](const Tensor& t) {
    return half ? t.Cast(DType::kFloat32) : t;
  };
  const Tensor wanted =
      CpuResults("ScatterAdd", c.attrs(), {widen(x), indices, widen(updates)},
                 {{half ? DType::kFloat32 : c.dtype, c.params()}})
          .front()
          .Cast(c.dtype);
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer in(x, c.skip), at(indices), own(x.bytes(), c.skip);
        const DeviceBuffer update(updates, c.skip);
        const DeviceBuffer workspace(ScatterAddWorkspace(c.s, c.dtype));
        const DeviceBuffer& y = c.in_place ? in : own;
        CHECK(ScatterAdd(c.s, c.dtype, in.get(), c.index, at.get(),
                         update.get(), y.get(), workspace.get(), nullptr,
                         nullptr)
                  .ok());
        return std::vector{y.Read(c.dtype, c.params())};
      }).front();
  const std::string difference = Difference(got, wanted, units, 1);
  CHECK_MESSAGE(difference.empty(), difference);
}

TEST_CASE("scattered sums of every numeric dtype") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
        DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    CheckScatter({dtype, DType::kInt64, {2, 3, 7, 40, 16}});
    CheckScatter({dtype, DType::kInt32, {1, 1, 9, 30, 3}});
  }
  CheckScatter({.s = {2, 1, 5, 11, 8}, .skip = 4});
  CheckScatter({.s = {2, 1, 5, 11, 8}, .in_place = true});
}

TEST_CASE("several chunks of indices are sorted and merged") {
  CheckScatter({.s = {1, 1, 100, 256, 2}}, 16);
  CheckScatter({.s = {1, 1, 100, 257, 2}}, 16);
  CheckScatter({.s = {1, 1, 1000, 1500, 1}}, 16);
}

TEST_CASE("rows with many updates") {
  CheckScatter({.s = {3, 2, 4, 500, 3}}, 64);
  CheckScatter({.s = {3, 1, 4, 513, 16}, .skip = 4}, 64);
  for (DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kInt8}) {
    CheckScatter({dtype, DType::kInt32, {1, 2, 1, 300, 16}}, 64);
  }
}

// Of one sign, so that a running sum has ever fewer digits for what is added.
TEST_CASE("of very many updates of one row none is lost") {
  constexpr int64_t kUpdates = 30'000;
  const GatherShape s = {1, 1, 1, kUpdates, 1};
  const Tensor updates = Tensor::Full(DType::kFloat32, {kUpdates}, 0.1F);
  const Tensor rows = Tensor::Zeros(DType::kInt64, {kUpdates});
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer update(updates), at(rows), first(rows.bytes());
    const DeviceBuffer y(Tensor::Zeros(DType::kFloat32, {1}));
    const DeviceBuffer sums(updates.bytes());
    const DeviceBuffer workspace(ScatterAddWorkspace(s, DType::kFloat32));
    CHECK(ScatterAdd(s, DType::kFloat32, y.get(), DType::kInt64, at.get(),
                     update.get(), y.get(), workspace.get(), nullptr, nullptr)
              .ok());
    const DeviceBuffer sorted(SortRowsWorkspace(kUpdates));
    CHECK(SumRows({kUpdates, 1, 1}, DType::kInt64, at.get(), DType::kFloat32,
                  update.get(), first.get(), sums.get(), sorted.get(), nullptr,
                  nullptr)
              .ok());
    return std::vector{y.Read(DType::kFloat32, {1}),
                       sums.Read(DType::kFloat32, {kUpdates})};
  });
  for (const Tensor& sum : got) {
    CHECK(sum.At(0) == doctest::Approx(kUpdates * double{0.1F}).epsilon(2e-6));
  }
}

TEST_CASE("what cannot be sorted is not supported") {
  CHECK(ScatterAddSupports({1, 1, int64_t{1} << 30, int64_t{1} << 30, 1}));
  CHECK(!ScatterAddSupports({1, 1, int64_t{1} << 40, int64_t{1} << 30, 1}));
}

// What a kernel reports of an index.
BadIndex Reported(int64_t position, int32_t index) {
  return static_cast<BadIndex>(position) << 32 | static_cast<uint32_t>(index);
}

TEST_CASE("the first index out of range is reported, read and write nothing") {
  const GatherShape s = {1, 1, 3, 4, 2};
  const Tensor params = RandomTensor(DType::kFloat32, {3, 2}, 1, 2);
  const Tensor indices =
      Tensor::Vector<int64_t>(std::vector<int64_t>{2, -1, 3, 2});
  const Tensor updates = Tensor::Full(DType::kFloat32, {4, 2}, 1);
  const std::vector<Tensor> got = InEveryOrder([&] {
    BadIndex gathered = kNoBadIndex, scattered = kNoBadIndex;
    const DeviceBuffer in(params), at(indices), y(32), update(updates);
    const DeviceBuffer sum(24),
        workspace(ScatterAddWorkspace(s, DType::kFloat32));
    CHECK(Gather(s, DType::kFloat32, in.get(), DType::kInt64, at.get(), y.get(),
                 &gathered, nullptr)
              .ok());
    CHECK(ScatterAdd(s, DType::kFloat32, in.get(), DType::kInt64, at.get(),
                     update.get(), sum.get(), workspace.get(), &scattered,
                     nullptr)
              .ok());
    CHECK_EQ(gathered, Reported(1, -1));
    CHECK_EQ(scattered, Reported(1, -1));
    return std::vector{y.Read(DType::kFloat32, {8}),
                       sum.Read(DType::kFloat32, {6})};
  });
  for (int i : {2, 3, 4, 5}) CHECK(got[0].At(i) == 0);
  CHECK(got[0].At(7) == params.At(5));
  for (int i : {0, 1, 2, 3}) CHECK(got[1].At(i) == params.At(i));
  CHECK(got[1].At(4) == doctest::Approx(params.At(4) + 2));
}

TEST_CASE("OneHot and InTopK report the first index out of range") {
  const Tensor indices =
      Tensor::Vector<int32_t>(std::vector<int32_t>{9, 0, 10, -5});
  const Tensor x = RandomTensor(DType::kFloat32, {4, 10}, 1, 2);
  const std::vector<Tensor> got = InEveryOrder([&] {
    BadIndex one_hot = kNoBadIndex, in_top_k = kNoBadIndex;
    const DeviceBuffer at(indices), logits(x), y(40), in(4);
    CHECK(OneHot({4, 10, 1, 0}, DType::kInt32, at.get(), DType::kUInt8, y.get(),
                 &one_hot, nullptr)
              .ok());
    CHECK(InTopK({4, 10, 10}, DType::kFloat32, logits.get(), DType::kInt32,
                 at.get(), in.as<bool>(), &in_top_k, nullptr)
              .ok());
    CHECK_EQ(one_hot, Reported(2, 10));
    CHECK_EQ(in_top_k, Reported(2, 10));
    return std::vector{y.Read(DType::kUInt8, {4, 10}),
                       in.Read(DType::kBool, {4})};
  });
  for (int i = 0; i < 40; ++i) CHECK(got[0].At(i) == (i == 9 || i == 10));
  for (int i = 0; i < 4; ++i) CHECK(got[1].At(i) == (i < 2));
}

TEST_CASE("one-hot rows of every element size") {
  for (DType dtype : {DType::kBool, DType::kFloat16, DType::kFloat32,
                      DType::kFloat64, DType::kInt64}) {
    for (DType index : {DType::kInt32, DType::kInt64}) {
      const Tensor indices = Positions(index, 61, 10);
      const Attributes attrs = {
          {"depth", int64_t{10}}, {"on", 1.0}, {"off", 0.0}, {"dtype", dtype}};
      const Tensor wanted =
          CpuResults("OneHot", attrs, {indices}, {{dtype, {61, 10}}}).front();
      uint64_t on = 0;
      const Tensor one = Tensor::Full(dtype, {}, 1);
      std::copy_n(static_cast<const char*>(one.raw()), one.bytes(),
                  reinterpret_cast<char*>(&on));
      const Tensor got = InEveryOrder([&] {
                           const DeviceBuffer in(indices), y(wanted.bytes());
                           CHECK(OneHot({61, 10, on, 0}, index, in.get(), dtype,
                                        y.get(), nullptr, nullptr)
                                     .ok());
                           return std::vector{y.Read(dtype, {61, 10})};
                         }).front();
      CHECK(got.BitEqual(wanted));
    }
  }
}

void CheckTopK(DType dtype, int64_t rows, int64_t n, int64_t k) {
  Tensor x = RandomTensor(DType::kFloat64, {rows, n}, -9, 9);
  for (double& v : x.values<double>()) v = std::round(v);  // ties
  if (IsFloating(dtype)) x.data<double>()[n / 2] = std::nan("");
  x = x.Cast(dtype);
  const Shape best{rows, k};
  const std::vector<Tensor> wanted = CpuResults(
      "TopK", {{"k", k}}, {x}, {{dtype, best}, {DType::kInt64, best}});
  const std::vector<Tensor> got = InEveryOrder([&] {
    const DeviceBuffer in(x), values(wanted[0].bytes()),
        indices(wanted[1].bytes()), workspace(TopKWorkspace({rows, n, k}));
    CHECK(TopK({rows, n, k}, dtype, in.get(), values.get(),
               indices.as<int64_t>(), workspace.get(), nullptr)
              .ok());
    return std::vector{values.Read(dtype, best),
                       indices.Read(DType::kInt64, best)};
  });
  CHECK(Difference(got[0], wanted[0], 0).empty());
  CHECK(got[1].BitEqual(wanted[1]));

  if (!IsFloating(dtype)) return;
  for (DType index : {DType::kInt32, DType::kInt64}) {
    const Tensor targets = Positions(index, rows, n);
    const Tensor in_wanted =
        CpuResults("InTopK", {{"k", k}}, {x, targets}, {{DType::kBool, {rows}}})
            .front();
    const Tensor in_got =
        InEveryOrder([&] {
          const DeviceBuffer in(x), at(targets);
          const DeviceBuffer y(static_cast<size_t>(rows));
          CHECK(InTopK({rows, n, k}, dtype, in.get(), index, at.get(),
                       y.as<bool>(), nullptr, nullptr)
                    .ok());
          return std::vector{y.Read(DType::kBool, {rows})};
        }).front();
    CHECK(in_got.BitEqual(in_wanted));
  }
}

TEST_CASE("the largest of each row, ties and NaN among them") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
        DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    CheckTopK(dtype, 7, 5, 5);
    CheckTopK(dtype, 4, 130, 3);
    CheckTopK(dtype, 3, 130, 99);   // sorted, in one chunk
    CheckTopK(dtype, 2, 600, 600);  // in several
  }
  for (const int64_t n : {256, 257, 512, 513, 1024, 1500}) {
    CheckTopK(DType::kFloat32, 2, n, n / 2);
  }
  CheckTopK(DType::kFloat32, 3, 1500, 5);
  CheckTopK(DType::kFloat32, 5, 1, 1);
  // Of none, however many rows.
  const int64_t before = emulation::Launches();
  for (const TopKShape& shape :
       {TopKShape{3, 5, 0}, {int64_t{1} << 40, 0, 0}}) {
    CHECK(TopK(shape, DType::kFloat32, nullptr, nullptr, nullptr, nullptr,
               nullptr)
              .ok());
  }
  CHECK(emulation::Launches() == before);
}

// One by one that were 10^10 elements to look at.
TEST_CASE("all of a long row in order, as a sort has them") {
  constexpr int64_t kMany = 100'000;
  const Tensor x = RandomTensor(DType::kFloat32, {kMany}, -9, 9);
  std::vector<int64_t> wanted(kMany);
  std::iota(wanted.begin(), wanted.end(), int64_t{0});
  std::stable_sort(wanted.begin(), wanted.end(), [&](int64_t a, int64_t b) {
    return x.data<float>()[a] > x.data<float>()[b];
  });
  const DeviceBuffer in(x), values(x.bytes()), indices(kMany * sizeof(int64_t)),
      workspace(TopKWorkspace({1, kMany, kMany}));
  CHECK(TopK({1, kMany, kMany}, DType::kFloat32, in.get(), values.get(),
             indices.as<int64_t>(), workspace.get(), nullptr)
            .ok());
  CHECK(indices.Read(DType::kInt64, {kMany})
            .BitEqual(Tensor::Vector<int64_t>(wanted)));
}

}  // namespace
}  // namespace sluice::cuda
