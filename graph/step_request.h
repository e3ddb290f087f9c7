// The part of a graph that a step computes.
#ifndef SLUICE_GRAPH_STEP_REQUEST_H_
#define SLUICE_GRAPH_STEP_REQUEST_H_

#include <vector>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// An output that gets its value from outside. The shape must be concrete.
struct FeedShape {
  Output output;
  Shape shape;
};

struct StepRequest {
  std::vector<FeedShape> feeds;
  std::vector<Output> fetches;
  std::vector<Operation> targets;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_STEP_REQUEST_H_
