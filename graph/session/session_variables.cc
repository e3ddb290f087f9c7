// A session's variables, from outside its steps.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "graph/session/session_state.h"

namespace sluice {
namespace {

// While it lives, no run touches the variables of a session that has them for
// itself; those that are shared have locks.
class OwnVariables {
 public:
  explicit OwnVariables(const Session::Impl& session) {
    if (!session.devices[0]->variables().shared()) turn_.emplace(session.lanes);
  }

 private:
  std::optional<Lanes::Turn> turn_;
};

}  // namespace

Session::Impl::Found Session::Impl::Find(const Output& variable) const {
  if (!variable.valid() || !variable.node().Is("Variable")) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is not a variable",
                            variable.valid() ? variable.name() : ""));
  }
  for (const auto& device : devices) {
    if (Variable* found = device->variables().Find(variable.node().origin())) {
      return {found, device.get()};
    }
  }
  return {};
}

Tensor Session::Read(const Output& variable) const {
  const OwnVariables own(*impl_);
  const auto [found, device] = impl_->Find(variable);
  if (found == nullptr || !found->initialized) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("variable '{}' is not initialised", variable.name()));
  }
  const ReaderLock unchanged(found->mutex);
  return device->memory().Download(found->value).ValueOrThrow();
}

void Session::Write(const Output& variable, const Tensor& value) {
  const OwnVariables own(*impl_);
  if (impl_->IsFrozen()) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("variable '{}' cannot be written: the session is "
                            "frozen",
                            variable.name()));
  }
  auto [found, home] = impl_->Find(variable);
  if (!(TensorTypeOf(value) == variable.type())) {
    throw Error(Code::kInvalidArgument,
                fmt::format("variable '{}' is {}, the value {}",
                            variable.name(), variable.type().ToString(),
                            TensorTypeOf(value).ToString()));
  }
  if (found == nullptr) {
    home = impl_->devices[0].get();
    for (const auto& device : impl_->devices) {
      if (device->name().ToString() == variable.node().device()) {
        home = device.get();
      }
    }
    found = home->variables()
                .Declare(variable.node().origin(), variable.type())
                .ValueOrThrow();
  }
  {
    const WriterLock alone(found->mutex);
    ThrowIfError(home->memory().Store(value, found->value));
  }
  found->initialized = true;
}

bool Session::IsInitialized(const Output& variable) const {
  const OwnVariables own(*impl_);
  const Variable* found = impl_->Find(variable).variable;
  return found != nullptr && found->initialized;
}

void Session::Freeze() {
  const Lanes::AllTurns alone(impl_->lanes);
  MutexLock lock(impl_->cache_mutex);
  impl_->frozen = true;
  while (!impl_->cache.empty()) impl_->Retire();
}

bool Session::Impl::IsFrozen() const {
  MutexLock lock(cache_mutex);
  return frozen;
}

std::string Session::FindNonFinite(const std::vector<Feed>& feeds,
                                   const std::vector<Output>& fetches) {
  struct Saved {
    Variable* variable;
    const DeviceMemory& memory;
    Tensor value;  // on the host
  };
  std::vector<Saved> saved;
  Observer* before;
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
        saved.push_back(
            {variable, device->memory(),
             device->memory().Download(variable->value).ValueOrThrow()});
      }
    }
    MutexLock lock(impl_->mutex);
    before = impl_->observer;
  }
  // What is wrong before the step begins comes first.
  for (const auto& [variable, memory, value] : saved) {
    if (variable->initialized &&
        !AllFinite(value.dtype(), value.raw(), value.elements())) {
      return variable->name;
    }
  }
  FiniteCheck check;
  SetObserver(&check);
  try {
    Run(feeds, fetches);
  } catch (const Error&) {
    // The check ends the step with an error.
  }
  SetObserver(before);
  const Lanes::AllTurns alone(impl_->lanes);
  for (const auto& [variable, memory, value] : saved) {
    ThrowIfError(memory.Store(value, variable->value));
  }
  return check.node();
}

}  // namespace sluice
