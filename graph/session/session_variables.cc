// A session's variables, from outside its steps.
#include <fmt/format.h>

#include "graph/session/session_state.h"

namespace sluice {

Session::Impl::Found Session::Impl::Find(const Output& variable) const {
  if (!variable.valid() || !variable.node().Is("Variable")) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is not a variable",
                            variable.valid() ? variable.name() : ""));
  }
  Device& home = HomeOf(variable.node(), devices);
  return {FindVariable(variable.node(), home).ValueOrThrow(), &home};
}

Tensor Session::Read(const Output& variable) const {
  Tensor value;
  Read(variable, &value);
  return value;
}

void Session::Read(const Output& variable, Tensor* value) const {
  const OwnTurn turn(*impl_);
  const auto [found, home] = impl_->Find(variable);
  if (found == nullptr || !found->initialized) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("variable '{}' is not initialised", variable.name()));
  }
  const ReaderLock unchanged(found->mutex);
  if (TensorTypeOf(*value) == TensorTypeOf(found->value)) {
    ThrowIfError(home->memory().Load(found->value, *value));
  } else {
    *value = home->memory().Download(found->value).ValueOrThrow();
  }
}

void Session::Write(const Output& variable, const Tensor& value) {
  const OwnTurn turn(*impl_);
  MutexLock lock(impl_->cache_mutex);  // so that nobody freezes it meanwhile
  if (impl_->frozen) {
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
    found = home->variables()
                .Declare(variable.node().origin(), variable.type())
                .ValueOrThrow();
  }
  const WriterLock alone(found->mutex);
  ThrowIfError(home->memory().Store(value, found->value));
  found->initialized = true;
}

bool Session::IsInitialized(const Output& variable) const {
  const OwnTurn turn(*impl_);
  const Variable* found = impl_->Find(variable).variable;
  return found != nullptr && found->initialized;
}

void Session::Freeze() {
  const Lanes::AllTurns alone(impl_->lanes);
  MutexLock lock(impl_->cache_mutex);
  if (!impl_->frozen) impl_->frozen.emplace();
  while (!impl_->cache.empty()) impl_->Retire();
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
