// The elementwise CUDA kernels, emulated, against the CPU's.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/semantics/scalar.h"
#include "kernels/cuda/ops/elementwise/elementwise.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

// Of Clip, of floats and of integers; the first is alpha.
const OpParams kParams = {-0.75, 1.5, 1, 3};

// Under which name and attributes the graph has a function.
struct GraphOp {
  std::string name;
  Attributes attrs;
};
GraphOp OpOf(std::string function, DType dtype) {
  GraphOp op;
  for (const char* gelu : {"GeluTanhGrad", "GeluTanh", "GeluGrad", "Gelu"}) {
    if (function != gelu) continue;
    const size_t at = function.find("Tanh");
    op.attrs.Set("approximate", at != std::string::npos);
    if (at != std::string::npos) function.erase(at, 4);
    break;
  }
  op.attrs.Set("alpha", kParams.a);
  if (function == "Clip") {
    op.attrs = {};
    op.attrs.Set("lo", IsInteger(dtype) ? Number(kParams.low) : kParams.a);
    op.attrs.Set("hi", IsInteger(dtype) ? Number(kParams.high) : kParams.b);
  }
  op.name = function;
  return op;
}

bool IsPredicate(UnaryLauncher, const std::string& function) {
  return function.starts_with("Is") || function.starts_with("Logical");
}
bool IsPredicate(BinaryLauncher, const std::string& function) {
  for (const char* p : {"Less", "Greater", "Equal", "NotEqual", "Logical"}) {
    if (function.starts_with(p)) return true;
  }
  return false;
}

// Where the shared functions are computed in float32 on both sides, results
// differ only by how compilers contract products and sums, which the condition
// of a function magnifies. Half results may then fall to a neighbour.
double EpsilonsFor(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 16 : 1;
}

// Small numbers, and those at the ends of the range, where arithmetic wraps.
Tensor IntegerOperand(DType dtype, const Shape& shape, unsigned seed) {
  const Tensor any = RandomTensor(DType::kFloat64, shape, -20, 20, seed);
  Tensor x = any.Cast(dtype);
  DispatchAmong<int8_t, uint8_t, int32_t, int64_t>(
      dtype, [&]<typename T>(TypeTag<T>) {
        using Limits = std::numeric_limits<T>;
        const T special[] = {Limits::lowest(), Limits::max(), T(-1), 0, 1, 7};
        for (int64_t i = 0; i < 6 && i * (seed + 1) < x.elements(); ++i) {
          x.data<T>()[i * (seed + 1)] = special[i];
        }
      });
  return x;
}

// Numbers around 0, then what is special about the dtype.
Tensor Operand(DType dtype, const Shape& shape, unsigned seed) {
  if (dtype == DType::kBool) {
    return RandomTensor(DType::kFloat32, shape, -1, 1, seed)
        .Cast(DType::kInt32)
        .Cast(dtype);
  }
  if (!IsFloating(dtype)) return IntegerOperand(dtype, shape, seed);
  Tensor wide = RandomTensor(DType::kFloat64, shape, -3, 3, seed);
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, 1, -1, inf, -inf, std::nan(""), 30, 2};
  for (int64_t i = 0; i < 9 && i * (seed + 1) < wide.elements(); ++i) {
    wide.data<double>()[i * (seed + 1)] = special[i];
  }
  return wide.Cast(dtype);
}

void CheckUnary(const std::string& function, DType dtype, int64_t n,
                size_t skip) {
  const UnaryLauncher launch = FindUnary(function, dtype);
  REQUIRE_MESSAGE((launch != nullptr), function);
  const GraphOp op = OpOf(function, dtype);
  const Tensor x = Operand(dtype, {n}, 1);
  const DType y_type = IsPredicate(launch, function) ? DType::kBool : dtype;
  const Tensor wanted =
      CpuResults(op.name, op.attrs, {x}, {{y_type, {n}}}).front();
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer in(x, skip), out(wanted.bytes(), skip);
        CHECK(launch(in.get(), out.get(), n, kParams, nullptr).ok());
        return std::vector{out.Read(y_type, {n})};
      }).front();
  const std::string difference = Difference(got, wanted, EpsilonsFor(dtype), 1);
  CHECK_MESSAGE(difference.empty(), function, " of ", difference);
}

void CheckBinary(const std::string& function, DType dtype, const Shape& a_shape,
                 const Shape& b_shape, size_t skip) {
  const BinaryLauncher launch = FindBinary(function, dtype);
  REQUIRE_MESSAGE((launch != nullptr), function);
  const GraphOp op = OpOf(function, dtype);
  const Tensor a = Operand(dtype, a_shape, 1), b = Operand(dtype, b_shape, 2);
  const Shape shape = BroadcastShapes(a_shape, b_shape).ValueOrThrow();
  const DType y_type = IsPredicate(launch, function) ? DType::kBool : dtype;
  const Tensor wanted =
      CpuResults(op.name, op.attrs, {a, b}, {{y_type, shape}}).front();
  const Shape shapes[] = {a_shape, b_shape};
  const Broadcast broadcast = BroadcastOf(shape, shapes);
  const Tensor got = InEveryOrder([&] {
                       const DeviceBuffer left(a, skip), right(b),
                           out(wanted.bytes(), skip);
                       CHECK(launch(left.get(), right.get(), out.get(),
                                    broadcast, kParams, nullptr)
                                 .ok());
                       return std::vector{out.Read(y_type, shape)};
                     }).front();
  const std::string difference = Difference(got, wanted, EpsilonsFor(dtype), 1);
  CHECK_MESSAGE(difference.empty(), function, " of ", difference);
}

template <typename... Ops>
std::vector<std::string> NamesOf(scalar::OpList<Ops...>) {
  return {Ops::kName...};
}
template <typename... Lists>
std::vector<std::string> AllNames(Lists... lists) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& names : {NamesOf(lists)...}) {
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

TEST_CASE("every function of one operand, in every floating dtype") {
  for (const std::string& function :
       AllNames(scalar::UnaryOps(), scalar::UnaryPredicates())) {
    if (function == "LogicalNot") continue;
    for (DType dtype : kFloatTypes) CheckUnary(function, dtype, 203, 0);
  }
  CheckUnary("LogicalNot", DType::kBool, 203, 0);
}

TEST_CASE("every function of two operands, in every floating dtype") {
  for (const std::string& function :
       AllNames(scalar::BinaryOps(), scalar::BinaryPredicates())) {
    if (function.starts_with("Logical")) {
      CheckBinary(function, DType::kBool, {203}, {203}, 0);
      continue;
    }
    for (DType dtype : kFloatTypes) {
      CheckBinary(function, dtype, {203}, {203}, 0);
    }
  }
  CheckBinary("Equal", DType::kBool, {67}, {67}, 1);
}

TEST_CASE("arithmetic and comparisons of integers, wrapping") {
  for (DType dtype :
       {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    for (const char* function : {"Neg", "Abs", "Sign", "Square", "Clip"}) {
      CheckUnary(function, dtype, 203, 0);
    }
    for (const char* function :
         {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Maximum",
          "Minimum", "SquaredDifference", "Less", "LessEqual", "Greater",
          "GreaterEqual", "Equal", "NotEqual"}) {
      CheckBinary(function, dtype, {203}, {203}, 0);
      CheckBinary(function, dtype, {3, 1, 5}, {7, 1}, SizeOf(dtype));
    }
  }
}

TEST_CASE("any length and alignment, several blocks") {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    for (int64_t n : {1, 7, 8, 4097}) {
      CheckUnary("Tanh", dtype, n, 0);
      CheckUnary("IsNan", dtype, n, SizeOf(dtype));
      CheckBinary("Mul", dtype, {n}, {n}, SizeOf(dtype));
    }
  }
}

TEST_CASE("operands broadcast as in NumPy") {
  struct Case {
    Shape a, b;
  };
  const Case cases[] = {{{5, 64}, {64}},         // bias of whole packs
                        {{5, 63}, {63}},         // and not
                        {{64}, {5, 64}},         //
                        {{7, 1}, {7, 32}},       // repeated along rows
                        {{}, {33}},              // a scalar
                        {{4, 1, 8}, {3, 1}},     //
                        {{2, 3, 1, 5}, {4, 1}},  //
                        {{2, 1, 4, 16}, {3, 1, 16}},
                        {{1}, {1}}};
  for (const Case& c : cases) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
      CheckBinary("Sub", dtype, c.a, c.b, 0);
      CheckBinary("Less", dtype, c.a, c.b, SizeOf(dtype));
    }
  }
}

TEST_CASE("merged dimensions stay few") {
  const Shape shapes[] = {{8, 4, 5}, {4, 5}};
  const Broadcast bias = BroadcastOf({8, 4, 5}, shapes);
  CHECK(bias.rank == 2);
  CHECK(bias.dims[1] == 20);
  CHECK(bias.strides[1][0] == 0);
  const Shape same[] = {{8, 4, 5}, {8, 4, 5}};
  CHECK(BroadcastOf({8, 4, 5}, same).rank == 1);
}

TEST_CASE("an output may be an operand") {
  const Tensor x = RandomTensor(DType::kFloat32, {1003}, -1, 1);
  const Tensor wanted =
      CpuResults("Exp", {}, {x}, {{DType::kFloat32, {1003}}}).front();
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer y(x);
        CHECK(FindUnary("Exp", x.dtype())(y.get(), y.get(), 1003, {}, nullptr)
                  .ok());
        return std::vector{y.Read(x.dtype(), x.shape())};
      }).front();
  CHECK(Difference(got, wanted, 4).empty());
}

TEST_CASE("every dtype converts to every other") {
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {0,    1,     -1,   2.5,   -3.5,   127,         128,
                            -129, 255,   256,  7e4,   2.2e9,  -3e9,        1e19,
                            inf,  -1e19, -inf, 1e-30, -0.999, std::nan("")};
  Tensor wide(DType::kFloat64, {61});
  for (int i = 0; i < 61; ++i) wide.data<double>()[i] = special[i % 20];
  for (int from = 0; from < kNumDTypes; ++from) {
    for (int to = 0; to < kNumDTypes; ++to) {
      const auto x_type = static_cast<DType>(from);
      const auto y_type = static_cast<DType>(to);
      const Tensor x = wide.Cast(x_type);
      Attributes attrs;
      attrs.Set("dtype", y_type);
      const Tensor wanted =
          CpuResults("Cast", attrs, {x}, {{y_type, x.shape()}}).front();
      for (size_t skip : {size_t{0}, SizeOf(y_type)}) {
        const Tensor got =
            InEveryOrder([&] {
              const DeviceBuffer in(x), out(wanted.bytes(), skip);
              CHECK(
                  FindCast(x_type, y_type)(in.get(), out.get(), 61, {}, nullptr)
                      .ok());
              return std::vector{out.Read(y_type, x.shape())};
            }).front();
        const std::string difference = Difference(got, wanted, 0);
        CHECK_MESSAGE(difference.empty(), NameOf(x_type), " to ", difference);
      }
    }
  }
}

TEST_CASE("half copies of many arrays are one launch") {
  const std::vector<int64_t> sizes = {1, 0, 8197, 64, 40};
  for (DType half : {DType::kFloat16, DType::kBFloat16}) {
    for (size_t skip : {0, 4}) {
      std::vector<Tensor> xs;
      std::vector<TensorType> types;
      for (int64_t n : sizes) {
        xs.push_back(RandomTensor(DType::kFloat32, {n}, -9, 9,
                                  static_cast<unsigned>(n)));
        types.push_back({DType::kFloat32, {n}});
      }
      ArrayList list = ListsOf(types).front();
      const auto got = InEveryOrder([&] {
        std::vector<DeviceBuffer> from, to;
        for (size_t k = 0; k < sizes.size(); ++k) {
          list.at[k].from = from.emplace_back(xs[k], skip).get();
          list.at[k].to = to.emplace_back(xs[k].bytes() / 2).get();
        }
        const int64_t before = emulation::Launches();
        CHECK(FindCastList(half)(list, nullptr).ok());
        CHECK(emulation::Launches() == before + 1);
        std::vector<Tensor> results;
        for (size_t k = 0; k < sizes.size(); ++k) {
          results.push_back(to[k].Read(half, {sizes[k]}));
        }
        return results;
      });
      for (size_t k = 0; k < sizes.size(); ++k) {
        CHECK(got[k].BitEqual(xs[k].Cast(half)));
      }
    }
  }
}

TEST_CASE("Select takes from either operand, broadcasting all three") {
  const Shape shapes[] = {{6, 1}, {5}, {6, 5}};
  const Broadcast broadcast = BroadcastOf({6, 5}, shapes);
  const Tensor condition = Operand(DType::kBool, shapes[0], 3);
  for (DType dtype :
       {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
    const Tensor a = RandomTensor(dtype, shapes[1], 0, 90, 1);
    const Tensor b = RandomTensor(dtype, shapes[2], 0, 90, 2);
    const Tensor wanted =
        CpuResults("Select", {}, {condition, a, b}, {{dtype, {6, 5}}}).front();
    const Tensor got =
        InEveryOrder([&] {
          const DeviceBuffer c(condition), left(a), right(b),
              out(wanted.bytes());
          CHECK(FindSelect(dtype)(c.as<bool>(), left.get(), right.get(),
                                  out.get(), broadcast, nullptr)
                    .ok());
          return std::vector{out.Read(dtype, {6, 5})};
        }).front();
    CHECK(got.BitEqual(wanted));
  }
}

// In every order; the second term lies askew if `skips`. In place of a term
// unless `to` is negative.
Tensor SumOf(const std::vector<Tensor>& terms, bool skips, int to) {
  const DType dtype = terms[0].dtype();
  const int64_t n = terms[0].elements();
  return InEveryOrder([&] {
           std::vector<DeviceBuffer> in;
           std::vector<const void*> at;
           for (size_t t = 0; t < terms.size(); ++t) {
             in.emplace_back(terms[t], skips && t == 1 ? SizeOf(dtype) : 0);
             at.push_back(in.back().get());
           }
           const DeviceBuffer y =
               to < 0 ? DeviceBuffer(terms[0].bytes()) : in[to];
           const DeviceBuffer sums(AddNWorkspace(dtype, terms.size(), n));
           CHECK(FindAddN(dtype)(at, y.get(), n, sums.get(), nullptr).ok());
           return std::vector{y.Read(dtype, {n})};
         })
      .front();
}

// One term after the other: integers wrap, halves are rounded once.
Tensor PlainSum(const std::vector<Tensor>& terms) {
  Tensor y(terms[0].dtype(), terms[0].shape());
  DispatchAmong<float, double, Half, BFloat16, int8_t, uint8_t, int32_t,
                int64_t>(y.dtype(), [&]<typename T>(TypeTag<T>) {
    using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                   sluice::ComputeType<T>>;
    for (int64_t i = 0; i < y.elements(); ++i) {
      Sum sum(terms[0].data<T>()[i]);
      for (size_t t = 1; t < terms.size(); ++t) {
        sum += static_cast<Sum>(terms[t].data<T>()[i]);
      }
      y.data<T>()[i] = static_cast<T>(sum);
    }
  });
  return y;
}

TEST_CASE("AddN adds in its order, in place of any term") {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt8}) {
    for (int64_t n : {1, 37, 2051}) {
      for (int count : {1, 2, 9}) {
        std::vector<Tensor> terms;
        for (int t = 0; t < count; ++t) {
          terms.push_back(RandomTensor(dtype, {n}, -9, 9, t + 1));
        }
        const Tensor wanted =
            CpuResults("AddN", {}, terms, {{dtype, {n}}}).front();
        CHECK(SumOf(terms, true, count / 2).BitEqual(wanted));
      }
    }
  }
}

// 511 are two full launches.
TEST_CASE("AddN adds more terms than a launch takes, also in place") {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
        DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    CAPTURE(NameOf(dtype));
    for (int count : {256, 257, 511, 512, 600}) {
      CAPTURE(count);
      const int64_t n = count == 257 ? 1029 : 37;
      const double least = dtype == DType::kUInt8 ? 0 : -9;
      std::vector<Tensor> terms;
      for (int t = 0; t < count; ++t) {
        terms.push_back(RandomTensor(dtype, {n}, least, 9, t + 1));
      }
      const Tensor wanted = PlainSum(terms);
      for (int to : {-1, 0}) {
        CHECK(SumOf(terms, false, to).BitEqual(wanted));
        CHECK(SumOf(terms, true, to).BitEqual(wanted));
      }
    }
  }
}

TEST_CASE("what has no kernel is null, and nothing to do is no launch") {
  CHECK((FindUnary("Frobnicate", DType::kFloat32) == nullptr));
  CHECK((FindUnary("Exp", DType::kBool) == nullptr));
  CHECK((FindBinary("Atan2", DType::kInt8) == nullptr));
  const int64_t before = emulation::Launches();
  CHECK(
      FindUnary("Exp", DType::kFloat32)(nullptr, nullptr, 0, {}, nullptr).ok());
  CHECK(emulation::Launches() == before);
}

}  // namespace
}  // namespace sluice::cuda
