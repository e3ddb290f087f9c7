// Runs steps while checking for values that are not finite.
#ifndef SLUICE_GRAPH_SESSION_FIND_NON_FINITE_H_
#define SLUICE_GRAPH_SESSION_FIND_NON_FINITE_H_

#include <functional>

#include "engine/runtime/finite_check.h"
#include "graph/session/session.h"

namespace sluice {

// Calls `steps`, which runs steps of the session, with `check` in place of the
// session's observer. Returns whether the check ended them; any other exception
// of `steps` goes to the caller.
bool EndedBy(FiniteCheck& check, Session& session,
             const std::function<void()>& steps);

}  // namespace sluice

#endif  // SLUICE_GRAPH_SESSION_FIND_NON_FINITE_H_
