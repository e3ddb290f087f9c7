// Our own CUDA products and convolutions, emulated, against the CPU's kernels:
// sizes beyond a tile, unaligned operands, and products cut along k.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cuda/ops/conv/conv.h"
#include "kernels/cuda/ops/gemm/matmul.h"
#include "kernels/cuda/ops/gemm/product_kernels.h"
#include "tests/kernels/cuda/emulation/device_run.h"

namespace sluice::cuda {
namespace {

// Sums of k products of numbers up to 1, in another order: each addition may
// round differently. Half results are rounded once, the CPU's twice if
// something is added.
void CheckClose(const Tensor& got, const Tensor& wanted, int64_t k) {
  const bool half = SizeOf(wanted.dtype()) == 2;
  const std::string difference =
      Difference(got, wanted, half ? 2 : 1, half ? 1 : static_cast<double>(k));
  CHECK_MESSAGE(difference.empty(), difference);
}

struct MatMulCase {
  const char* op = "MatMul";
  Shape a, b;
  bool transpose_a = false, transpose_b = false;
  bool relu = false;
};

void CheckMatMul(const MatMulCase& c, DType dtype, size_t skip = 0) {
  KernelSpec spec{.op = c.op};
  spec.attrs.Set("transpose_a", c.transpose_a);
  spec.attrs.Set("transpose_b", c.transpose_b);
  const Shape& larger = c.a.rank() > c.b.rank() ? c.a : c.b;
  Shape y = larger.Slice(0, larger.rank() - 2);
  y.push_back(c.a[c.transpose_a ? -1 : -2]);
  y.push_back(c.b[c.transpose_b ? -2 : -1]);
  std::vector<Tensor> inputs = {RandomTensor(dtype, c.a, -1, 1, 1),
                                RandomTensor(dtype, c.b, -1, 1, 2)};
  if (spec.op == "MatMulBias") {
    spec.attrs.Set("relu", c.relu);
    inputs.push_back(RandomTensor(dtype, {y[-1]}, -1, 1, 3));
  }
  if (spec.op == "MatMulAdd") {
    inputs.push_back(RandomTensor(dtype, y, -1, 1, 3));
  }
  for (const Tensor& t : inputs) spec.inputs.push_back({t.dtype(), t.shape()});
  spec.outputs = {{dtype, y}};
  const Tensor wanted =
      CpuResults(spec.op, spec.attrs, inputs, spec.outputs).front();
  const Product p = ProductOf(spec);
  const ProductShape shape = ProductShapeOf(spec);
  CAPTURE(spec.op);
  CAPTURE(p.m);
  CAPTURE(p.n);
  CAPTURE(p.k);
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer a(inputs[0], skip), b(inputs[1], skip);
        const DeviceBuffer out(wanted.bytes(), skip);
        const DeviceBuffer workspace(ProductWorkspace(shape, dtype));
        const DeviceBuffer added =
            inputs.size() > 2 ? DeviceBuffer(inputs[2], skip) : out;
        Epilogue epilogue{.relu = c.relu};
        if (AddedTo(spec) == Added::kBias) epilogue.bias = added.get();
        if (AddedTo(spec) == Added::kMatrix) epilogue.addend = added.get();
        // An addend is best replaced.
        void* const to =
            AddedTo(spec) == Added::kMatrix ? added.get() : out.get();
        CHECK(FindMatMul(dtype)(p, shape, a.get(), b.get(), to, epilogue,
                                workspace.get(), nullptr)
                  .ok());
        return std::vector{
            (AddedTo(spec) == Added::kMatrix ? added : out).Read(dtype, y)};
      }).front();
  CheckClose(got, wanted, p.k);
}

TEST_CASE("matrix products of several tiles, transposed, whole and odd") {
  for (DType dtype : kFloatTypes) {
    CheckMatMul({.a = {70, 36}, .b = {36, 72}}, dtype);
    CheckMatMul({.a = {70, 36}, .b = {36, 72}}, dtype, 8);
  }
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (int odd : {0, 1}) {
        const int m = 68 + odd, n = 64 + odd, k = 20 + odd;
        CheckMatMul({.a = ta ? Shape{k, m} : Shape{m, k},
                     .b = tb ? Shape{n, k} : Shape{k, n},
                     .transpose_a = ta,
                     .transpose_b = tb},
                    DType::kFloat32);
      }
    }
  }
}

// Element (i, j) of what a column-major matrix is used as.
float At(const Tensor& memory, const ColumnMajor& m, int64_t i, int64_t j) {
  if (m.transposed) std::swap(i, j);
  CHECK((i < m.rows && j < m.columns && m.rows <= m.pitch));
  return memory.data<float>()[j * m.pitch + i];
}

TEST_CASE("row-major products are column-major ones of swapped operands") {
  constexpr int64_t kM = 3, kN = 4, kK = 5;
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const Shape a_shape = ta ? Shape{kK, kM} : Shape{kM, kK};
      const Shape b_shape = tb ? Shape{kN, kK} : Shape{kK, kN};
      const Tensor a = RandomTensor(DType::kFloat32, a_shape, -1, 1, 1);
      const Tensor b = RandomTensor(DType::kFloat32, b_shape, -1, 1, 2);
      Attributes attrs;
      attrs.Set("transpose_a", ta);
      attrs.Set("transpose_b", tb);
      const Tensor wanted =
          CpuResults("MatMul", attrs, {a, b}, {{DType::kFloat32, {kM, kN}}})
              .front();
      const ColumnMajorProduct p = ColumnMajorProductOf({kM, kN, kK, ta, tb});
      for (int64_t row = 0; row < kN; ++row) {
        for (int64_t column = 0; column < kM; ++column) {
          float sum = 0;
          for (int64_t k = 0; k < kK; ++k) {
            sum += At(b, p.first, row, k) * At(a, p.second, k, column);
          }
          CHECK(At(wanted, p.result, row, column) == doctest::Approx(sum));
        }
      }
    }
  }
}

TEST_CASE("the products of a batch by one call, or a call for each offset") {
  KernelSpec spec{.op = "BatchMatMul"};
  spec.attrs.Set("transpose_a", false);
  spec.attrs.Set("transpose_b", false);
  // A is one for every two, B another for each.
  spec.inputs = {{DType::kFloat32, {3, 1, 5, 4}},
                 {DType::kFloat32, {3, 2, 4, 8}}};
  spec.outputs = {{DType::kFloat32, {3, 2, 5, 8}}};
  const MatMulBatches some = MatMulBatchesOf(ProductShapeOf(spec));
  CHECK(some.inner == 2);
  CHECK(some.a_stride == 0);
  CHECK(some.b_stride == 4 * 8);
  CHECK(some.c_stride == 5 * 8);
  REQUIRE(some.outer.size() == 3);
  CHECK(some.outer[2].a == 2 * 5 * 4);
  CHECK(some.outer[2].b == 2 * 2 * 4 * 8);
  CHECK(some.outer[2].c == 2 * 2 * 5 * 8);
  spec.inputs[0].shape = {3, 2, 5, 4};
  const MatMulBatches all = MatMulBatchesOf(ProductShapeOf(spec));
  CHECK(all.inner == 6);
  CHECK(all.a_stride == 5 * 4);
  CHECK(all.outer.size() == 1);
}

TEST_CASE("a batch that a call cannot count is not served, others are whole") {
  constexpr int64_t kMany = (int64_t{1} << 31) + 2;
  const auto batch_of = [](const Shape& a, const Shape& b) {
    KernelSpec spec{.op = "BatchMatMul"};
    spec.attrs.Set("transpose_a", false);
    spec.attrs.Set("transpose_b", false);
    spec.inputs = {{DType::kFloat32, a}, {DType::kFloat32, b}};
    spec.outputs = {{DType::kFloat32, b}};
    return ProductShapeOf(spec);
  };
  CHECK(!BatchesAreServed(batch_of({kMany, 1, 1}, {kMany, 1, 1})));
  CHECK(!BatchesAreServed(batch_of({2, 1, 1, 1}, {2, kMany, 1, 1})));
  // Merged, 2^32.
  CHECK(!BatchesAreServed(batch_of({4, 1 << 30, 1, 1}, {4, 1 << 30, 1, 1})));
  for (const ProductShape& shape :
       {batch_of({1, 1}, {1, 1}), batch_of({4, 7, 1, 1}, {4, 7, 1, 1}),
        batch_of({3, 1, 1, 1}, {3, kMany - 512, 1, 1}),
        batch_of({4, 1, 1, 1}, {4, 1 << 30, 1, 1})}) {
    REQUIRE(BatchesAreServed(shape));
    const MatMulBatches batches = MatMulBatchesOf(shape);
    const auto calls = static_cast<int64_t>(batches.outer.size());
    CHECK(batches.inner * calls == shape.batch.elements);
  }
}

TEST_CASE("a long k is cut into parts, and their sums are added in order") {
  const ProductShape shape = {
      .m = 5, .n = 67, .k = 1000, .batch = BroadcastOf({}, {})};
  CHECK(ProductWorkspace(shape, DType::kBFloat16) == 3 * 5 * 67 * 4);
  for (DType dtype : kFloatTypes) {
    CheckMatMul({.a = {5, 1000}, .b = {1000, 67}}, dtype);
  }
  CheckMatMul({.op = "MatMulBias",
               .a = {5, 530},
               .b = {66, 530},
               .transpose_b = true,
               .relu = true},
              DType::kFloat16);
  CheckMatMul(
      {.op = "MatMulAdd", .a = {530, 5}, .b = {530, 66}, .transpose_a = true},
      DType::kFloat32);
  CheckMatMul({.op = "BatchMatMul", .a = {2, 3, 5, 530}, .b = {3, 530, 4}},
              DType::kFloat32);
}

// As in a product of so many tiles that k is not cut.
TEST_CASE("sums along a long part of k keep the digits of their terms") {
  constexpr int kM = 2, kN = 3, kK = 8192;
  const ProductShape shape = {
      .m = kM, .n = kN, .k = kK, .batch = BroadcastOf({}, {}), .c_pitch = kN};
  const ProductTiles tiles = {.rows = 1, .columns = 1, .part = kK, .count = 1};
  const auto operand = [](const DeviceBuffer& matrix, int lines, int length,
                          bool along_k) {
    return MatrixOperand<float>{
        matrix.as<const float>(), lines, length, length, along_k, false};
  };
  const Tensor c =
      InEveryOrder([&] {
        const DeviceBuffer a(Tensor::Full(DType::kFloat32, {kM, kK}, 0.1F)),
            b(Tensor::Full(DType::kFloat32, {kK, kN}, 1)), out(kM * kN * 4);
        CHECK(LaunchTiles<float>("product", shape, tiles,
                                 operand(a, kM, kK, /*along_k=*/true),
                                 operand(b, kK, kN, /*along_k=*/false),
                                 out.as<float>(), {}, nullptr, nullptr)
                  .ok());
        return std::vector{out.Read(DType::kFloat32, {kM, kN})};
      }).front();
  for (int64_t i = 0; i < c.elements(); ++i) {
    CHECK(c.At(i) == doctest::Approx(kK * double{0.1F}).epsilon(1e-5));
  }
}

TEST_CASE("products with a bias, an addend in the result's place, a batch") {
  for (size_t skip : {0, 4}) {
    CheckMatMul({.op = "MatMulBias", .a = {66, 3}, .b = {3, 68}, .relu = true},
                DType::kFloat32, skip);
    CheckMatMul({.op = "MatMulAdd", .a = {66, 3}, .b = {3, 68}},
                DType::kFloat32, skip);
    CheckMatMul({.op = "BatchMatMul", .a = {3, 1, 5, 4}, .b = {1, 2, 4, 8}},
                DType::kFloat32, skip);
  }
}

TEST_CASE("products over nothing are what is added; of nothing, nothing") {
  CheckMatMul({.a = {3, 0}, .b = {0, 5}}, DType::kFloat32);
  CheckMatMul({.op = "MatMulBias", .a = {3, 0}, .b = {0, 5}}, DType::kFloat32);
  const ProductShape none = {
      .m = 0, .n = 5, .k = 4, .batch = BroadcastOf({}, {})};
  CHECK(FindMatMul(DType::kFloat32)({0, 5, 4, false, false}, none, nullptr,
                                    nullptr, nullptr, {}, nullptr, nullptr)
            .ok());
}

struct ConvCase {
  Shape x, filter;
  std::vector<int64_t> strides = {1, 1}, dilations = {1, 1};
  std::vector<int64_t> padding = {1, 1, 1, 1};
  int64_t groups = 1;
};

// One of the convolutions, `op` of Conv2D, Conv2DBackpropInput, ....
void CheckConv(const std::string& op, const ConvCase& c, DType dtype,
               size_t skip = 0) {
  KernelSpec spec{.op = op, .conv = OpTable::Global().Get(op).conv};
  spec.attrs.Set("strides", c.strides);
  spec.attrs.Set("dilations", c.dilations);
  spec.attrs.Set("padding", std::string("EXPLICIT"));
  spec.attrs.Set("explicit_padding", c.padding);
  spec.attrs.Set("groups", c.groups);
  const Window2D window =
      WindowOf(spec.attrs, c.x, c.filter[0], c.filter[1]).ValueOrThrow();
  const Shape y{c.x[0], window.h.output, window.w.output, c.filter[3]};
  const ConvPass pass = spec.conv.pass;
  const auto shapes = pass == ConvPass::kForward ? std::vector{c.x, c.filter, y}
                      : pass == ConvPass::kInput
                          ? std::vector{y, c.filter, c.x}
                          : std::vector{c.x, y, c.filter};
  const std::vector<Tensor> inputs = {RandomTensor(dtype, shapes[0], -1, 1, 1),
                                      RandomTensor(dtype, shapes[1], -1, 1, 2)};
  for (const Tensor& t : inputs) spec.inputs.push_back({t.dtype(), t.shape()});
  spec.outputs = {{dtype, shapes[2]}};
  const Tensor wanted =
      CpuResults(op, spec.attrs, inputs, spec.outputs).front();
  const ConvGeometry g = ConvGeometryOf(spec).ValueOrThrow();
  const ProductShape shape = ConvProductOf(g, pass);
  CAPTURE(op);
  CAPTURE(c.x.ToString());
  CAPTURE(c.filter.ToString());
  const Tensor got =
      InEveryOrder([&] {
        const DeviceBuffer a(inputs[0], skip), b(inputs[1], skip);
        const DeviceBuffer out(wanted.bytes(), skip);
        const DeviceBuffer workspace(ProductWorkspace(shape, dtype));
        CHECK(FindConv(pass, dtype)(g, a.get(), b.get(), out.get(), {},
                                    workspace.get(), nullptr)
                  .ok());
        return std::vector{out.Read(dtype, shapes[2])};
      }).front();
  CheckClose(got, wanted, shape.k);
}

TEST_CASE("convolutions of several tiles, in packs and one by one") {
  const ConvCase whole = {.x = {1, 9, 8, 8}, .filter = {3, 3, 8, 68}};
  const ConvCase odd = {.x = {2, 7, 9, 5},
                        .filter = {3, 2, 5, 7},
                        .strides = {2, 1},
                        .padding = {1, 0, 0, 1}};
  const ConvCase grouped = {.x = {1, 6, 7, 8},
                            .filter = {2, 3, 4, 16},
                            .strides = {1, 2},
                            .dilations = {2, 1},
                            .padding = {0, 2, 1, 2},
                            .groups = 2};
  for (const char* op :
       {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}) {
    for (const ConvCase& c : {whole, odd, grouped}) {
      CheckConv(op, c, DType::kFloat32);
    }
    CheckConv(op, whole, DType::kFloat32, 4);
    CheckConv(op, grouped, DType::kFloat16);
    CheckConv(op, grouped, DType::kBFloat16);
    CheckConv(op, odd, DType::kFloat64);
  }
}

TEST_CASE("a filter's gradient over many pixels is cut into parts") {
  const ConvCase many = {
      .x = {3, 15, 15, 4}, .filter = {1, 1, 4, 6}, .padding = {0, 0, 0, 0}};
  CheckConv("Conv2DBackpropFilter", many, DType::kFloat32);
  CheckConv("Conv2DBackpropFilter", many, DType::kFloat16);
}

}  // namespace
}  // namespace sluice::cuda
