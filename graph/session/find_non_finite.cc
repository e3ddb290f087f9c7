#include "graph/session/find_non_finite.h"

#include <string>
#include <vector>

#include "graph/session/session_state.h"

namespace sluice {
namespace {

class ObserverInPlace {
 public:
  ObserverInPlace(Session& session, Observer* observer)
      : session_(session), before_(session.SetObserver(observer)) {}
  ~ObserverInPlace() { session_.SetObserver(before_); }
  ObserverInPlace(const ObserverInPlace&) = delete;
  ObserverInPlace& operator=(const ObserverInPlace&) = delete;

 private:
  Session& session_;
  Observer* before_;
};

}  // namespace

bool EndedBy(FiniteCheck& check, Session& session,
             const std::function<void()>& steps) {
  const ObserverInPlace in_place(session, &check);
  try {
    steps();
  } catch (const Error&) {
    if (check.ends_step() && !check.node().empty()) return true;
    throw;
  }
  return false;
}

std::string Session::FindNonFinite(const std::vector<Feed>& feeds,
                                   const std::vector<Output>& fetches) {
  struct Saved {
    Variable* variable;
    const DeviceMemory& memory;
    Tensor value;  // on the host
  };
  if (impl_->cluster != nullptr) {
    throw Error(Code::kUnimplemented,
                "what is not finite cannot be looked for in a session with "
                "other tasks' devices");
  }
  std::vector<Saved> saved;
  {
    const Lanes::AllTurns alone(impl_->lanes);
    for (const auto& device : impl_->devices) {
      if (device->variables().shared()) {
        throw Error(Code::kFailedPrecondition,
                    "what is not finite cannot be looked for while others may "
                    "use the variables: the session has a container or "
                    "concurrent runs");
      }
      for (Variable* variable : device->variables().All()) {
        if (!variable->initialized) continue;
        saved.push_back(
            {variable, device->memory(),
             device->memory().Download(variable->value).ValueOrThrow()});
      }
    }
  }
  // What is wrong before the step begins comes first.
  for (const auto& [variable, memory, value] : saved) {
    if (!AllFinite(value)) return variable->name;
  }
  const uint64_t step_before = step();
  FiniteCheck check;
  const auto put_back = [&] {
    set_step(step_before);
    const Lanes::AllTurns alone(impl_->lanes);
    // The step may have given first values, and have made variables.
    for (const auto& device : impl_->devices) {
      for (Variable* variable : device->variables().All()) {
        variable->initialized = false;
      }
    }
    for (const auto& [variable, memory, value] : saved) {
      ThrowIfError(memory.Store(value, variable->value));
      variable->initialized = true;
    }
  };
  try {
    EndedBy(check, *this, [&] { Run(feeds, fetches); });
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return check.node();
}

}  // namespace sluice
