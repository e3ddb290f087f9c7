#include "graph/reuse_variables.h"

namespace sluice {

ReuseVariables::ReuseVariables(const Scope& scope)
    : graph_(scope.graph()),
      below_(scope.name().empty() ? "" : scope.name() + "/"),
      outer_(graph_.reuse_) {
  graph_.reuse_ = this;
}
bool ReuseVariables::Covers(std::string_view name) const {
  return name.starts_with(below_) ||
         (outer_ != nullptr && outer_->Covers(name));
}

}  // namespace sluice
