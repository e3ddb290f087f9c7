#include "graph/passes/passes.h"

namespace sluice::passes {
namespace {

using Devices = std::vector<std::string>;

template <void (*kPass)(Graph&)>
Status Always(Graph& graph, const Devices&) {
  kPass(graph);
  return {};
}

constexpr NamedPass kPasses[] = {
    {"prune", Always<Prune>},
    {"refine", [](Graph& g, const Devices&) { return Refine(g); }},
    {"simplify", Always<Simplify>},
    {"merge", Always<MergeCommon>},
    {"fold_batch_norm", Always<FoldBatchNorm>},
    {"place", [](Graph& g, const Devices& d) { return Place(g, d); }},
    {"mix_float16",
     [](Graph& g, const Devices&) { return MixPrecision(g, DType::kFloat16); }},
    {"mix_bfloat16",
     [](Graph& g, const Devices&) {
       return MixPrecision(g, DType::kBFloat16);
     }},
    {"pad_channels", Always<PadChannels>},
    {"order_variables",
     [](Graph& g, const Devices&) { return OrderVariables(g); }},
    {"fuse",
     [](Graph& g, const Devices&) {
       Fuse(g);
       return Status::Ok();
     }},
    {"verify", [](Graph& g, const Devices&) { return Verify(g); }},
};

}  // namespace

std::span<const NamedPass> All() {
  return kPasses;
}

}  // namespace sluice::passes
