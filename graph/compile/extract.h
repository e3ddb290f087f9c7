// A step as a graph of its own.
#ifndef SLUICE_GRAPH_COMPILE_EXTRACT_H_
#define SLUICE_GRAPH_COMPILE_EXTRACT_H_

#include <memory>
#include <vector>

#include "engine/visibility.h"
#include "graph/step_request.h"

namespace SLUICE_INTERNAL sluice {

// The requested part of the graph as a graph of its own: fed outputs become
// placeholders of concrete shape, fetches and targets become sinks. Errors name
// the feed or fetch, what was given and what was wanted.
Result<std::unique_ptr<Graph>> ExtractStep(const Graph& graph,
                                           const StepRequest& request);

// The index of the feed that a step's placeholder stands for; negative if it is
// no feed.
int64_t FeedIndex(const Node& node);

// Returns an error unless every placeholder that is left is one of the feeds,
// and no node updates a feed.
Status CheckFed(const Graph& step);

// The types of the feeds and fetches, in the order of the request; an error for
// indices that no request can have given (a step may come from a file).
Result<std::vector<TensorType>> FeedTypes(const Graph& step);
Result<std::vector<TensorType>> FetchTypes(const Graph& step);

}  // namespace sluice

#endif  // SLUICE_GRAPH_COMPILE_EXTRACT_H_
