// oneDNN's kernels against the reference loops: never one of the library's own
// references, whole slices and shorter ones, the same bits for any number of
// threads. op_table_test tries them on the probes of every op.
#include <doctest/doctest.h>

#if SLUICE_HAVE_ONEDNN
#include <dlfcn.h>
#include <fmt/format.h>

#include <thread>

#include "bench/resnet50_layers.h"
#include "engine/threads.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "kernels/cpu/onednn/onednn.h"
#include "tests/support/kernel_run.h"

namespace sluice::testing {
namespace {

using cpu::IsOnednnReference;
using cpu::kOnednnF32;
using cpu::OnednnDesc;
using cpu::OnednnEngine;
using cpu::OnednnImages;

const KernelDef* Onednn(const KernelSpec& spec) {
  for (const KernelDef* def :
       KernelTable::Global().FindAll(spec, DeviceType::kCpu)) {
    if (def->provider == "onednn") return def;
  }
  return nullptr;
}

// A node's float inputs, uniform on [-1, 1).
std::vector<Tensor> InputsOf(const KernelSpec& spec) {
  std::vector<Tensor> inputs;
  uint64_t state = 7;
  for (const TensorType& type : spec.inputs) {
    inputs.push_back(Tensor::Zeros(type.dtype, type.shape));
    if (type.dtype != DType::kFloat32) continue;
    for (float& x : inputs.back().values<float>()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = static_cast<float>(state >> 40) * 0x1p-23f - 1.0f;
    }
  }
  return inputs;
}

// Against the reference in float64, and for one and two threads.
void CheckNode(const Node& node, double tolerance = 2e-5) {
  const KernelSpec spec = SpecOf(node, /*deterministic=*/true);
  const std::string where =
      fmt::format("{} {} -> {}", spec.op, spec.inputs[0].ToString(),
                  spec.outputs[0].ToString());
  INFO(where);
  const KernelDef* def = Onednn(spec);
  REQUIRE(def != nullptr);
  const std::vector<Tensor> inputs = InputsOf(spec);
  SetComputeThreads(1);
  const std::vector<Tensor> one = RunKernel(*def, spec, inputs);
  SetComputeThreads(2);
  const std::vector<Tensor> two = RunKernel(*def, spec, inputs, 0x37);
  CHECK(SameBits(one, two));
  SetComputeThreads(0);

  const std::vector<Tensor> wanted = Float64Reference(spec, inputs);
  CHECK(Difference(one, wanted, {.relative = tolerance}) == "");
}

// A convolution and both its gradients.
std::vector<Output> Convolution(Graph& graph, const Shape& x_shape,
                                const Shape& filter_shape,
                                const Conv2DOptions& options) {
  const Output x = graph.Placeholder("x", DType::kFloat32, x_shape);
  const Output filter = graph.Placeholder("f", DType::kFloat32, filter_shape);
  const Output y = Conv2D(x, filter, options);
  const std::vector<Output> gradients = Gradients({y}, {x, filter});
  return {y, gradients[0], gradients[1]};
}

TEST_CASE("every convolution of ResNet-50 has a kernel that is no reference") {
  for (const Resnet50Layer& l : kResnet50Layers) {
    Graph graph;
    const int64_t pad = l.kernel / 2;
    for (const Output& output :
         Convolution(graph, {16, l.size, l.size, l.in},
                     {l.kernel, l.kernel, l.in, l.out},
                     {.strides = {l.stride, l.stride},
                     .padding = Padding::kExplicit,
                     .explicit_padding = {pad, pad, pad, pad}})) {
      const KernelSpec spec = SpecOf(output.node(), false);
      CHECK_MESSAGE(Onednn(spec) != nullptr, spec.op << " " << l.name);
    }
  }
}

TEST_CASE("a reference implementation is recognised") {
  const OnednnDesc images = OnednnImages(2, 8, 8, 16);
  const OnednnDesc filter({16, 16, 3, 3}, kOnednnF32,
                          dnnl::memory::format_tag::any);
  // Looking for further implementations reads it again.
  const dnnl::convolution_forward::desc convolution(
      dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
      images, filter, images, {1, 1}, {1, 1}, {1, 1});
  dnnl::convolution_forward::primitive_desc desc(convolution, OnednnEngine());
  CHECK_FALSE(IsOnednnReference(desc));
  bool found = false;
  while (!found && desc.next_impl()) {
    found = std::string(desc.impl_info_str()).starts_with("ref");
    CHECK(IsOnednnReference(desc) == found);
  }
  CHECK(found);
}

TEST_CASE("convolutions agree with the reference") {
  for (const int64_t images : {1, 3, 17}) {  // slices of 1, 1, and 3 and 2
    const auto check = [&](const Shape& x, const Shape& filter,
                           const Conv2DOptions& options) {
      Graph graph;
      for (const Output& output : Convolution(graph, x, filter, options)) {
        CheckNode(output.node());
      }
    };
    check({images, 9, 8, 16}, {3, 3, 16, 24}, {});
    check({images, 9, 8, 16}, {1, 1, 16, 136}, {.strides = {2, 2}});
    check({images, 11, 10, 3}, {5, 3, 3, 10}, {.strides = {2, 1}});
    check({images, 9, 9, 5}, {3, 3, 5, 7}, {.dilations = {2, 1}});
  }
}

TEST_CASE("matrix products agree with the reference") {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Graph graph;
      const auto matrix = [&](int64_t m, int64_t n, bool t) {
        return graph.Placeholder("m", DType::kFloat32,
                                 t ? Shape{n, m} : Shape{m, n});
      };
      for (const int64_t m : {7, 500}) {
        CheckNode(MatMul(matrix(m, 33, ta), matrix(33, 20, tb),
                         {.transpose_a = ta, .transpose_b = tb})
                      .node());
      }
    }
  }
}

TEST_CASE("mean pools agree with the reference") {
  for (const int64_t images : {2, 17}) {
    Graph graph;
    const Output x =
        graph.Placeholder("x", DType::kFloat32, {images, 7, 6, 24});
    const Output y = AvgPool(
        x, {.window = {3, 2}, .strides = {2, 2}, .padding = Padding::kSame});
    CheckNode(y.node());
  }
}

TEST_CASE("what oneDNN turns out not to have is the next kernel's") {
  Graph graph;
  const Output a = graph.Placeholder("a", DType::kFloat32, {4, 5});
  const Output b = graph.Placeholder("b", DType::kFloat32, {5, 6});
  const KernelSpec spec = SpecOf(MatMul(a, b).node(), false);
  using Make = KernelPtr (*)(const KernelSpec&);
  const Make throws = [](const KernelSpec&) -> KernelPtr {
    throw dnnl::error(dnnl_unimplemented, "no primitive");
  };
  const Make none = [](const KernelSpec&) -> KernelPtr { return nullptr; };
  for (const Make make : {throws, none}) {
    KernelTable table;
    cpu::RegisterOnednn(table, "MatMul", make,
                        [](const KernelSpec&) { return true; });
    CHECK(table.Make(spec, DeviceType::kCpu).status().code() ==
          Code::kUnimplemented);
    table.Register({.op = "MatMul", .make = [](const KernelSpec&) {
                      return Result<KernelPtr>(
                          KernelOf([](const KernelContext&) {}));
                    }});
    const MadeKernel made = table.Make(spec, DeviceType::kCpu).ValueOrThrow();
    CHECK(made.kernel != nullptr);
    CHECK(made.def->provider == "reference");
    CHECK(made.refused.starts_with("onednn: oneDNN has no kernel for it"));
  }
}

TEST_CASE("a kernel leaves OpenMP's settings as they were") {
  using Get = int (*)();
  using Set = void (*)(int);
  const auto get =
      reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const auto set =
      reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  const bool found = get != nullptr && set != nullptr;
  REQUIRE(found);
  std::thread([&] {
    set(3);
    Graph graph;
    const Output a = graph.Placeholder("a", DType::kFloat32, {4, 5});
    const Output b = graph.Placeholder("b", DType::kFloat32, {5, 6});
    CheckNode(MatMul(a, b).node());
    CHECK(get() == 3);
  }).join();
}

}  // namespace
}  // namespace sluice::testing
#endif  // SLUICE_HAVE_ONEDNN
