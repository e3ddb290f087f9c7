// Cross entropy: a block per row of logits.
#include "kernels/cuda/ops/reduce/loss.h"

#include <algorithm>

#include "kernels/cuda/device/ahead.h"
#include "kernels/cuda/device/bad_index_device.h"
#include "kernels/cuda/device/log_sum_exp.h"
#include "kernels/cuda/ops/elementwise/elementwise_kernels.h"

namespace sluice::cuda {
namespace {

// CrossEntropyOperands with types.
template <typename T, typename Label>
struct Operands {
  const T* logits;
  const Label* labels;
  const T* max;
  const T* scale;
  const T* dloss;
  T* dlogits;
  T* loss;
  T* max_out;
  T* scale_out;
  BadIndex* bad;
};

// What a row's threads have in common. Labels are smoothed to
// keep * label + spread.
template <typename C>
struct Row {
  int64_t classes;
  C keep, spread;
  bool whole;
  C* shared;
  C max;      // of the logits x
  C scale;    // 1 / sum(exp(x - max))
  C log_sum;  // of the same sum; for the loss alone
};

// --- Labels as dense as the logits -------------------------------------------

template <bool kRuns, typename T, typename C>
__device__ C DenseLoss(const Row<C>& row, const T* x, const T* labels) {
  RowSum<C, kRuns> loss;
  ForRow(x, row.classes, 1, row.whole, [&](int64_t i, C v) {
    loss.Add((row.keep * static_cast<C>(labels[i]) + row.spread) *
             (row.log_sum - (v - row.max)));
  });
  return BlockReduce(loss.Result(), row.shared, scalar::Add());
}

template <bool kRuns, typename T, typename C>
__device__ void DenseGrad(const Row<C>& row, const T* x, const T* labels,
                          C smoothing, C dloss, T* dx) {
  RowSum<C, kRuns> sum;
  ForRow(labels, row.classes, 1, row.whole,
         [&](int64_t, C label) { sum.Add(row.keep * label); });
  C total = BlockReduce(sum.Result(), row.shared, scalar::Add()) + smoothing;
  total *= row.scale;
  MapRow(x, dx, row.classes, 1, row.whole, [&](int64_t i, C v) {
    const C label = row.keep * static_cast<C>(labels[i]) + row.spread;
    return dloss * (scalar::Exp()(v - row.max) * total - label);
  });
}

// --- One class per row -------------------------------------------------------

template <bool kRuns, typename T, typename C>
__device__ C SparseLoss(const Row<C>& row, const T* x, int64_t label) {
  C loss = row.keep * (row.log_sum - (static_cast<C>(x[label]) - row.max));
  if (row.spread != 0) {
    RowSum<C, kRuns> distance;
    ForRow(x, row.classes, 1, row.whole,
           [&](int64_t, C v) { distance.Add(row.log_sum - (v - row.max)); });
    loss +=
        row.spread * BlockReduce(distance.Result(), row.shared, scalar::Add());
  }
  return loss;
}

template <typename T, typename C>
__device__ void SparseGrad(const Row<C>& row, const T* x, int64_t label,
                           C dloss, T* dx) {
  MapRow(x, dx, row.classes, 1, row.whole, [&](int64_t i, C v) {
    const C p = row.scale * scalar::Exp()(v - row.max);
    return dloss * (p - row.spread - (i == label ? row.keep : C(0)));
  });
}

// -----------------------------------------------------------------------------

template <typename T, typename Label, bool kRuns>
__global__ void CrossEntropyKernel(CrossEntropyShape shape,
                                   Operands<T, Label> o, bool whole) {
  using C = ComputeOf<T>;
  constexpr bool kSparse = std::is_integral_v<Label>;
  const C smoothing = static_cast<C>(shape.smoothing);
  Row<C> row = {
      shape.classes,
      static_cast<C>(1 - shape.smoothing),
      static_cast<C>(shape.smoothing / static_cast<double>(shape.classes)),
      whole,
      SharedMemory<C>(),
      0,
      0,
      0};
  for (int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
    const int64_t at = r * shape.classes;
    const T* x = o.logits + at;
    int64_t label = 0;
    bool is_class = true;
    if constexpr (kSparse) {
      label = static_cast<int64_t>(o.labels[r]);
      if (label < 0 || label >= shape.classes) {
        if (threadIdx.x == 0) ReportBadIndex(o.bad, r, label);
        label = 0;
        is_class = false;
      }
    }
    if (o.loss != nullptr) {
      const ExpSum<C> e =
          SumExpOfRow<kRuns>(x, shape.classes, 1, whole, row.shared);
      row.max = e.max;
      row.scale = 1 / e.sum;
      row.log_sum = scalar::Log()(e.sum);
      C loss;
      if constexpr (kSparse) {
        loss = SparseLoss<kRuns>(row, x, label);
      } else {
        loss = DenseLoss<kRuns>(row, x, o.labels + at);
      }
      if (threadIdx.x == 0) {
        o.loss[r] = T(is_class ? loss : static_cast<C>(__builtin_nanf("")));
        o.max_out[r] = T(row.max);
        o.scale_out[r] = T(row.scale);
      }
    } else {
      row.max = static_cast<C>(o.max[r]);
      row.scale = static_cast<C>(o.scale[r]);
    }
    if (o.dlogits != nullptr) {
      const C dloss = is_class ? static_cast<C>(o.dloss[r]) : C(0);
      Barrier();  // dlogits may be the logits, of which all read x[label]
      if constexpr (kSparse) {
        SparseGrad(row, x, label, dloss, o.dlogits + at);
      } else {
        DenseGrad<kRuns>(row, x, o.labels + at, smoothing, dloss,
                         o.dlogits + at);
      }
    }
  }
}

template <typename T, typename Label>
Status LaunchCrossEntropy(const CrossEntropyShape& shape,
                          const CrossEntropyOperands& o, cudaStream_t stream) {
  bool whole = RowsAreWhole<T>(o.logits, shape.classes) &&
               RowsAreWhole<T>(o.dlogits, shape.classes);
  if constexpr (!std::is_integral_v<Label>) {
    whole = whole && RowsAreWhole<T>(o.labels, shape.classes);
  }
  const Operands<T, Label> typed = {
      static_cast<const T*>(o.logits), static_cast<const Label*>(o.labels),
      static_cast<const T*>(o.max),    static_cast<const T*>(o.scale),
      static_cast<const T*>(o.dloss),  static_cast<T*>(o.dlogits),
      static_cast<T*>(o.loss),         static_cast<T*>(o.max_out),
      static_cast<T*>(o.scale_out),    o.bad};
  const Grid grid = {std::min(shape.rows, kMostRowBlocks),
                     RowThreads(shape.classes),
                     kBlockReduceShared * sizeof(ComputeOf<T>)};
  return DispatchBools(
      [&](auto runs) {
        return Launch("SoftmaxCrossEntropy", grid, stream,
                      CrossEntropyKernel<T, Label, runs.value>, shape, typed,
                      whole);
      },
      HasRowRuns(shape.classes));
}

// log(1 + exp(-|x|)) + max(x, 0) - x * label.
struct SigmoidCrossEntropy {
  static constexpr const char* kName = "SigmoidCrossEntropy";
  template <typename C>
  __device__ C operator()(C x, C label) const {
    const C tail = scalar::Log1p()(scalar::Exp()(-scalar::Abs()(x)));
    return (x > C(0) ? x : C(0)) - x * label + tail;
  }
};

}  // namespace

CrossEntropyLauncher FindCrossEntropy(DType dtype) {
  return DispatchFloating(
      dtype, []<typename E>(TypeTag<E>) -> CrossEntropyLauncher {
        return LaunchCrossEntropy<DeviceTypeOf<E>, DeviceTypeOf<E>>;
      });
}

CrossEntropyLauncher FindSparseCrossEntropy(DType dtype, DType labels) {
  return DispatchFloating(dtype, [&]<typename E>(TypeTag<E>) {
    return DispatchIndex(
        labels, []<typename Label>(TypeTag<Label>) -> CrossEntropyLauncher {
          return LaunchCrossEntropy<DeviceTypeOf<E>, Label>;
        });
  });
}

BinaryLauncher FindSigmoidCrossEntropy(DType dtype) {
  return LauncherFor<Binary, SigmoidCrossEntropy>(dtype, FloatingTypes());
}

}  // namespace sluice::cuda
