#include "kernels/cuda/vendor/cudnn_conv_plan.h"

#include <algorithm>
#include <utility>

namespace sluice::cuda {
namespace {

// cuDNN 9.8 and later read the device from elsewhere if these are not set, but
// versions before want them. Whether max(0, NaN) is NaN has to be set, too.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr auto kGraphHandle = CUDNN_ATTR_OPERATIONGRAPH_HANDLE;
constexpr auto kPlanHandle = CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
constexpr auto kNanPropagation = CUDNN_ATTR_POINTWISE_NAN_PROPAGATION;
constexpr auto kPropagateNan = CUDNN_PROPAGATE_NAN;
#pragma GCC diagnostic pop

// What names the tensors of a plan when it is run; the rest lies between
// operations.
enum TensorId : int64_t {
  kX = 1,
  kFilter,
  kY,
  kBias,
  kAddend,
  kSum,
  kSquares,
  kFirstWithin
};

// Of operands; the engine aligns tensors to more.
constexpr int64_t kAlignmentBytes = 16;

cudnnDataType_t TypeOf(DType dtype) {
  return dtype == DType::kFloat16    ? CUDNN_DATA_HALF
         : dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16
                                     : CUDNN_DATA_FLOAT;
}

using Dims = std::vector<int64_t>;

// Dimensions are named n, c, h, w; channels lie next to each other.
struct Tensor4 {
  int64_t n, c, h, w;
  Dims dims() const { return {n, c, h, w}; }
  Dims strides() const { return {h * w * c, 1, w * c, c}; }
};

DnnDescriptor TensorOf(int64_t id, const Tensor4& shape, cudnnDataType_t type,
                       bool within) {
  DnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, shape.dims())
      .Set(CUDNN_ATTR_TENSOR_STRIDES, shape.strides())
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignmentBytes)
      .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, within);
  return tensor;
}

// Collects finalized descriptors, which stay where they are told of.
class Parts {
 public:
  // Index, for at().
  size_t Add(DnnDescriptor part, const char* what) {
    if (status_.ok()) status_ = part.Finalize(what);
    parts_.push_back(std::move(part));
    return parts_.size() - 1;
  }
  const DnnDescriptor& at(size_t i) const { return parts_[i]; }
  const Status& status() const { return status_; }
  std::vector<DnnDescriptor> Take() { return std::move(parts_); }

 private:
  std::vector<DnnDescriptor> parts_;
  Status status_;
};

size_t AddConvolution(Parts& parts, const DnnConv& conv, size_t x,
                      size_t filter, size_t y) {
  const ConvGeometry& g = conv.geometry;
  DnnDescriptor description(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  description.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
           Dims{g.h.pad_before, g.w.pad_before})
      .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
           Dims{g.h.pad_after, g.w.pad_after})
      .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Dims{g.h.dilation, g.w.dilation})
      .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Dims{g.h.stride, g.w.stride});
  const size_t what = parts.Add(std::move(description), "a convolution");
  const auto operation = [&](cudnnBackendDescriptorType_t type,
                             cudnnBackendAttributeName_t conv_name,
                             cudnnBackendAttributeName_t x_name,
                             cudnnBackendAttributeName_t filter_name,
                             cudnnBackendAttributeName_t y_name,
                             cudnnBackendAttributeName_t alpha,
                             cudnnBackendAttributeName_t beta) {
    DnnDescriptor made(type);
    made.Set(conv_name, parts.at(what))
        .Set(x_name, parts.at(x))
        .Set(filter_name, parts.at(filter))
        .Set(y_name, parts.at(y))
        .Set(alpha, 1.0f)
        .Set(beta, 0.0f);
    return parts.Add(std::move(made), "a convolution");
  };
  switch (conv.pass) {
    case ConvPass::kForward:
      return operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    case ConvPass::kInput:
      return operation(
          CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
    case ConvPass::kFilter:
      return operation(
          CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
  }
  return 0;
}

// y = mode(x, operand), without an operand where it is x itself.
size_t AddPointwise(Parts& parts, cudnnPointwiseMode_t mode, size_t x,
                    size_t operand, size_t y) {
  DnnDescriptor description(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  description.Set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    // Else max(0, NaN) may be 0, and a training that diverges does not show it.
    description.Set(kNanPropagation, kPropagateNan);
  }
  const size_t what = parts.Add(std::move(description), "an epilogue");
  DnnDescriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts.at(what))
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, parts.at(x))
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts.at(y));
  if (operand != x) {
    made.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, parts.at(operand));
  }
  return parts.Add(std::move(made), "an epilogue");
}

size_t AddSums(Parts& parts, size_t y, size_t sum, size_t squares) {
  DnnDescriptor made(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  made.Set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, parts.at(y))
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, parts.at(sum))
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, parts.at(squares));
  return parts.Add(std::move(made), "sums of channels");
}

// The engine of a configuration, and whether it meets the conditions.
DnnDescriptor EngineOf(const DnnDescriptor& config) {
  DnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  if (Dnn()->GetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                          &raw) != CUDNN_STATUS_SUCCESS) {
    return {};
  }
  return engine;
}
bool Meets(const DnnDescriptor& config, const DnnConditions& conditions,
           bool exact) {
  const DnnDescriptor engine = EngineOf(config);
  if (engine.get() == nullptr) return false;
  const auto notes = engine.Get<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::none_of(notes.begin(), notes.end(), [&](auto note) {
    switch (note) {
      // Sums and operands keep their precision ...
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return true;
      // ... which of float32 tensor cores do not have.
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return exact;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return conditions.deterministic;
      default:
        return false;
    }
  });
}

}  // namespace

Result<DnnConvGraph> DnnConvGraph::Make(const DnnConv& conv,
                                        const DnnTarget& target) {
  const ConvGeometry& g = conv.geometry;
  const cudnnDataType_t type = TypeOf(conv.dtype);
  const Tensor4 x_shape = {g.images, g.x_channels(), g.h.input, g.w.input};
  const Tensor4 y_shape = {g.images, g.y_channels(), g.h.output, g.w.output};
  const Tensor4 filter_shape = {g.y_channels(), g.in, g.h.window, g.w.window};
  Parts parts;
  const auto add = [&](int64_t id, const Tensor4& shape) {
    return parts.Add(TensorOf(id, shape, type, false), "a tensor");
  };
  // A tensor between two operations, not in memory, of what is computed in.
  int64_t next_id = kFirstWithin;
  const auto within = [&] {
    return parts.Add(TensorOf(next_id++, y_shape, CUDNN_DATA_FLOAT, true),
                     "a tensor");
  };
  const size_t x = add(kX, x_shape), filter = add(kFilter, filter_shape);
  const size_t y = add(kY, y_shape);
  // The order of cuDNN's own fused convolution: addend, bias, activation.
  int left = (conv.addend ? 1 : 0) + (conv.bias ? 1 : 0) + (conv.relu ? 1 : 0);
  size_t last = left == 0 ? y : within();
  std::vector<size_t> operations = {
      AddConvolution(parts, conv, x, filter, last)};
  const auto then = [&](cudnnPointwiseMode_t mode, size_t operand) {
    const size_t to = --left == 0 ? y : within();
    operations.push_back(AddPointwise(parts, mode, last, operand, to));
    last = to;
  };
  if (conv.addend) then(CUDNN_POINTWISE_ADD, add(kAddend, y_shape));
  if (conv.bias) {
    then(CUDNN_POINTWISE_ADD, add(kBias, {1, g.y_channels(), 1, 1}));
  }
  if (conv.relu) then(CUDNN_POINTWISE_RELU_FWD, last);
  if (conv.sums) {
    const auto sums = [&](int64_t id) {
      return parts.Add(
          TensorOf(id, {1, g.y_channels(), 1, 1}, CUDNN_DATA_FLOAT, false),
          "a tensor");
    };
    const size_t sum = sums(kSum), squares = sums(kSquares);
    operations.push_back(AddSums(parts, y, sum, squares));
  }
  SLUICE_RETURN_IF_ERROR(parts.status());

  std::vector<cudnnBackendDescriptor_t> all;
  for (size_t operation : operations) {
    all.push_back(parts.at(operation).get());
  }
  DnnConvGraph made;
  made.graph_ = DnnDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  made.graph_.SetDescriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, all);
  if (target.handle != nullptr) made.graph_.Set(kGraphHandle, target.handle);
  SLUICE_RETURN_IF_ERROR(made.graph_.Finalize("a graph of operations"));
  made.parts_ = parts.Take();
  made.exact_ = conv.dtype == DType::kFloat32;
  return made;
}

std::vector<DnnDescriptor> DnnSuggestions(const DnnConvGraph& graph,
                                          const DnnTarget& target,
                                          const DnnConditions& conditions) {
  std::vector<DnnDescriptor> suggestions;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    DnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get())
        .Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (target.device != nullptr) {
      heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
    }
    if (!heuristics.Finalize("suggestions").ok()) continue;
    int64_t count = 0;
    if (Dnn()->GetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                            nullptr) != CUDNN_STATUS_SUCCESS) {
      continue;
    }
    std::vector<DnnDescriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < count; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(configs.back().get());
    }
    if (Dnn()->GetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                            raw.data()) != CUDNN_STATUS_SUCCESS) {
      continue;
    }
    configs.resize(static_cast<size_t>(count));
    for (DnnDescriptor& config : configs) {
      if (Meets(config, conditions, graph.exact() && !conditions.tf32)) {
        suggestions.push_back(std::move(config));
      }
    }
  }
  return suggestions;
}

int64_t DnnEngineOf(const DnnDescriptor& config) {
  const DnnDescriptor engine = EngineOf(config);
  if (engine.get() == nullptr) return -1;
  const auto number = engine.Get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1);
  return number.empty() ? -1 : number[0];
}

Result<DnnPlan> MakeDnnPlan(DnnDescriptor config, const DnnTarget& target) {
  DnnPlan made;
  made.plan = DnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  made.plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (target.handle != nullptr) made.plan.Set(kPlanHandle, target.handle);
  if (target.device != nullptr) {
    made.plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
  }
  SLUICE_RETURN_IF_ERROR(made.plan.Finalize("a plan"));
  const auto workspace =
      made.plan.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1);
  made.engine = DnnEngineOf(config);
  if (workspace.empty() || made.engine < 0) {
    return Internal("cuDNN does not say what a plan needs");
  }
  made.workspace = static_cast<size_t>(workspace[0]);
  made.config = std::move(config);
  return made;
}

Result<DnnDescriptor> MakeDnnPack(const DnnConv& conv,
                                  const DnnOperands& operands) {
  std::vector<int64_t> ids = {kX, kFilter, kY};
  std::vector<void*> pointers = {operands.x, operands.filter, operands.y};
  if (conv.bias) {
    ids.push_back(kBias);
    pointers.push_back(operands.bias);
  }
  if (conv.addend) {
    ids.push_back(kAddend);
    pointers.push_back(operands.addend);
  }
  if (conv.sums) {
    ids.insert(ids.end(), {kSum, kSquares});
    pointers.insert(pointers.end(), {operands.sum, operands.squares});
  }
  DnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, operands.workspace);
  SLUICE_RETURN_IF_ERROR(pack.Finalize("operands"));
  return pack;
}

}  // namespace sluice::cuda
