#include "graph/passes/fuse_rules.h"

namespace sluice::passes {

std::vector<Fusion> Fuse(Graph& graph, const DeviceDescriptions& devices) {
  Fusions done;
  std::vector<Node*> order;
  {
    NodeMerger merger(graph);
    FuseNorms(merger, &done);
    FuseMaxPools(merger, &done);
    FuseOptimizers(merger, &done);
    FuseProducts(merger, &done);
    FuseLosses(merger, &done);
    FuseElementwise(merger, devices, &done);
    FuseLists(merger, &done);
    order = merger.Order();
  }
  std::vector<Fusion> fusions;
  for (const Node* node : order) {
    auto fusion = done.find(node->name());
    if (fusion != done.end()) fusions.push_back(std::move(fusion->second));
  }
  return fusions;
}

}  // namespace sluice::passes
