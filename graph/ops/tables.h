// The tables of built-in ops, one per family, each at the end of its file.
#ifndef SLUICE_GRAPH_OPS_TABLES_H_
#define SLUICE_GRAPH_OPS_TABLES_H_

#include <span>
#include <vector>

#include "graph/op.h"

namespace sluice {

std::span<const OpDef> StateOps();              // state.cc
std::span<const OpDef> ControlOps();            // control.cc
std::span<const OpDef> ElementwiseOps();        // elementwise.cc
std::span<const OpDef> ElementwiseBinaryOps();  // elementwise_binary.cc
std::span<const OpDef> ActivationOps();         // activation.cc
std::span<const OpDef> FusedOps();              // fused.cc
std::span<const OpDef> ReduceOps();             // reduce.cc
std::span<const OpDef> MatMulOps();             // matmul.cc
std::span<const OpDef> ConvOps();               // conv.cc
std::span<const OpDef> ConvOhwiOps();           // conv_ohwi.cc
std::span<const OpDef> PoolOps();               // pool.cc
std::span<const OpDef> NormOps();               // norm.cc
std::span<const OpDef> FusedNormOps();          // fused_norm.cc
std::span<const OpDef> DropoutOps();            // dropout.cc
std::span<const OpDef> SoftmaxOps();            // softmax.cc
std::span<const OpDef> LossOps();               // loss.cc
std::span<const OpDef> ShapeOps();              // shape.cc
std::span<const OpDef> ArrayOps();              // array.cc
std::span<const OpDef> SliceOps();              // slice.cc
std::span<const OpDef> IndexOps();              // index.cc
std::span<const OpDef> CountedRowsOps();        // counted_rows.cc
std::span<const OpDef> RandomOps();             // random.cc
std::span<const OpDef> OptimizerOps();          // optimizer.cc
std::span<const OpDef> CollectiveOps();         // collective.cc

// An op that float16 is good enough for (HalfRule).
constexpr OpDef Follows(OpDef op) {
  op.half = HalfRule::kFollow;
  return op;
}

inline std::vector<std::span<const OpDef>> BuiltInOps() {
  return {
      StateOps(),       ControlOps(),  ElementwiseOps(), ElementwiseBinaryOps(),
      ActivationOps(),  FusedOps(),    ReduceOps(),      MatMulOps(),
      ConvOps(),        ConvOhwiOps(), PoolOps(),        NormOps(),
      FusedNormOps(),   DropoutOps(),  SoftmaxOps(),     LossOps(),
      ShapeOps(),       ArrayOps(),    SliceOps(),       IndexOps(),
      CountedRowsOps(), RandomOps(),   OptimizerOps(),   CollectiveOps()};
}

}  // namespace sluice

#endif  // SLUICE_GRAPH_OPS_TABLES_H_
