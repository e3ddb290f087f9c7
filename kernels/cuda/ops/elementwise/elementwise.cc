// The kernels of the elementwise ops: each function of
// engine/semantics/scalar.h under its op's name, with BiasAdd, Cast, CastList,
// Select and AddN.
#include "kernels/cuda/ops/elementwise/elementwise.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/convert.h"
#include "engine/semantics/scalar.h"
#include "kernels/cuda/runtime/kernels.h"

namespace sluice::cuda {
namespace {

OpParams ParamsOf(const KernelSpec& spec) {
  OpParams params;
  if (spec.attrs.Has("alpha")) params.a = spec.attrs.Float("alpha");
  if (spec.attrs.Has("lo")) {
    const Number low = spec.attrs.NumberOf("lo");
    const Number high = spec.attrs.NumberOf("hi");
    params.a = low.real();
    params.b = high.real();
    DispatchDType(spec.inputs[0].dtype, [&]<typename T>(TypeTag<T>) {
      if constexpr (std::is_integral_v<T>) {
        params.low = NearestIn<T>(low);    // NOLINT: int8 is a number here
        params.high = NearestIn<T>(high);  // NOLINT
      }
    });
  }
  return params;
}

Broadcast OperandsOf(const KernelSpec& spec) {
  std::vector<Shape> operands;
  for (const TensorType& input : spec.inputs) operands.push_back(input.shape);
  return BroadcastOf(spec.outputs[0].shape, operands);
}

KernelPtr UnaryKernelOf(const KernelSpec& spec, UnaryLauncher launch) {
  return KernelOf([launch, n = spec.outputs[0].shape.elements(),
                   params = ParamsOf(spec)](const KernelContext& c) {
    return launch(c.input<void>(0), c.output<void>(0), n, params, StreamOf(c));
  });
}

Result<KernelPtr> MakeUnary(const KernelSpec& spec) {
  return UnaryKernelOf(spec, FindUnary(spec.scalar, spec.inputs[0].dtype));
}

Result<KernelPtr> MakeBinary(const KernelSpec& spec) {
  const BinaryLauncher launch = FindBinary(spec.scalar, spec.inputs[0].dtype);
  return KernelOf([launch, shape = OperandsOf(spec),
                   params = ParamsOf(spec)](const KernelContext& c) {
    return launch(c.input<void>(0), c.input<void>(1), c.output<void>(0), shape,
                  params, StreamOf(c));
  });
}

Result<KernelPtr> MakeCast(const KernelSpec& spec) {
  return UnaryKernelOf(spec,
                       FindCast(spec.inputs[0].dtype, spec.outputs[0].dtype));
}

Result<KernelPtr> MakeCastList(const KernelSpec& spec) {
  return KernelOf([lists = ListsOf(spec.inputs),
                   launch = FindCastList(spec.outputs[0].dtype)](
                      const KernelContext& c) mutable -> Status {
    return LaunchLists(
        lists,
        [&](int i, ArrayList::Array& array) {
          array.from = c.input<void>(i);
          array.to = c.output<void>(i);
        },
        [&](const ArrayList& list) { return launch(list, StreamOf(c)); });
  });
}

Result<KernelPtr> MakeSelect(const KernelSpec& spec) {
  const SelectLauncher launch = FindSelect(spec.outputs[0].dtype);
  return KernelOf([launch, shape = OperandsOf(spec)](const KernelContext& c) {
    return launch(c.input<bool>(0), c.input<void>(1), c.input<void>(2),
                  c.output<void>(0), shape, StreamOf(c));
  });
}

Result<KernelPtr> MakeAddN(const KernelSpec& spec) {
  const DType dtype = spec.outputs[0].dtype;
  const int64_t n = spec.outputs[0].shape.elements();
  std::vector<const void*> terms(spec.inputs.size());
  const size_t workspace = AddNWorkspace(dtype, terms.size(), n);
  return KernelOf(
      [launch = FindAddN(dtype), terms = std::move(terms),
       n](const KernelContext& c) mutable {
        for (size_t t = 0; t < terms.size(); ++t) {
          terms[t] = c.input<void>(static_cast<int>(t));
        }
        return launch(terms, c.output<void>(0), n, c.workspace(), StreamOf(c));
      },
      workspace);
}

// The dtypes that `find` has a launcher for.
template <typename Launcher>
DTypeSet DTypesOf(Launcher (*find)(std::string_view, DType),
                  const char* function) {
  DTypeSet dtypes;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (find(function, dtype) != nullptr) dtypes = dtypes | dtype;
  }
  return dtypes;
}

template <typename... Ops>
void RegisterUnary(KernelTable& table, scalar::OpList<Ops...>) {
  (RegisterOwn(table, Ops::kName, DTypesOf(FindUnary, Ops::kName), MakeUnary),
   ...);
}
template <typename... Ops>
void RegisterBinary(KernelTable& table, scalar::OpList<Ops...>) {
  (RegisterOwn(table, Ops::kName, DTypesOf(FindBinary, Ops::kName), MakeBinary),
   ...);
}

}  // namespace

void RegisterElementwiseKernels(KernelTable& table) {
  RegisterUnary(table, scalar::UnaryOps());
  RegisterUnary(table, scalar::UnaryPredicates());
  RegisterBinary(table, scalar::BinaryOps());
  RegisterBinary(table, scalar::BinaryPredicates());
  RegisterOwn(table, "BiasAdd", kFloating, MakeBinary);
  RegisterOwn(table, "Cast", kAnyType, MakeCast);
  RegisterOwn(table, "CastList", DType::kFloat32, MakeCastList);
  RegisterOwn(table, "Select", DType::kBool, MakeSelect);
  RegisterOwn(table, "AddN", kNumeric, MakeAddN);
}

}  // namespace sluice::cuda
