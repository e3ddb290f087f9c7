// Layers that are called several times with the same variables.
#ifndef SLUICE_GRAPH_REUSE_VARIABLES_H_
#define SLUICE_GRAPH_REUSE_VARIABLES_H_

#include <string>
#include <string_view>

#include "engine/visibility.h"
#include "graph/graph.h"

namespace SLUICE_PUBLIC sluice {

// RAII: part of a model is called again and shares its variables, as a module
// is that is called twice (siamese networks, a discriminator of real and of
// made pictures).
//
//   const auto tower = [&](Output x) {
//     return layers::Dense(scope / "tower" / "fc", x, {.units = 8});
//   };
//   const Output left = tower(a);
//   const ReuseVariables again(scope / "tower");
//   const Output right = tower(b);
//
// A variable made meanwhile below `scope` whose name is taken is the one there
// is; its initializer is not used. That must be a variable of the same dtype,
// shape and options, or it is the error that it is otherwise. What is not there
// yet is made. Other nodes get names of their own, as ever, so that Dropout
// draws anew. Whoever writes what it shares must do so behind the writes of the
// calls before (graph/ops/state.h), as layers::BatchNorm does.
class ReuseVariables {
 public:
  explicit ReuseVariables(const Scope& scope);
  ~ReuseVariables() { graph_.reuse_ = outer_; }
  ReuseVariables(const ReuseVariables&) = delete;
  ReuseVariables& operator=(const ReuseVariables&) = delete;

 private:
  friend class Graph;
  bool Covers(std::string_view name) const;

  Graph& graph_;
  const std::string below_;  // "tower/", or empty: all
  const ReuseVariables* const outer_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_REUSE_VARIABLES_H_
