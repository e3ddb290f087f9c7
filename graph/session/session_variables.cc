// A session's variables, from outside its steps.
#include <fmt/format.h>

#include <cstring>

#include "engine/allocate.h"
#include "graph/session/session_state.h"

namespace sluice {

void Session::Impl::RequireVariable(const Output& variable) {
  if (variable.valid() && variable.node().IsVariable()) return;
  throw Error(Code::kInvalidArgument,
              fmt::format("'{}' is not a variable",
                          variable.valid() ? variable.name() : ""));
}

Session::Impl::Found Session::Impl::Find(const Output& variable) const {
  RequireVariable(variable);
  Device& home = HomeOf(variable.node(), devices);
  return {FindVariable(variable.node(), home).ValueOrThrow(), &home};
}

Tensor Session::Read(const Output& variable) const {
  Tensor value;
  Read(variable, &value);
  return value;
}

void Session::Read(const Output& variable, Tensor* value) const {
  if (variable.valid() && SpreadsRows(variable.node())) {
    if (TensorTypeOf(*value) != variable.type()) {
      *value =
          AllocateTensor(variable.dtype(), variable.shape()).ValueOrThrow();
    }
    return ReadRows(variable, 0, value);
  }
  if (const std::string far = impl_->FarHomeOf(variable); !far.empty()) {
    const Tensor there =
        impl_->cluster->Read(far, variable.node().origin()).ValueOrThrow();
    // By another master's graph it may be of any.
    if (TensorTypeOf(there) != variable.type()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("variable '{}' is {} in the graph, {} on {}",
                              variable.name(), variable.type().ToString(),
                              TensorTypeOf(there).ToString(), far));
    }
    if (TensorTypeOf(*value) != variable.type()) {
      *value = there;
    } else if (there.bytes() > 0) {
      std::memcpy(value->raw(), there.raw(), there.bytes());
    }
    return;
  }
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

void Session::Impl::RequireNotFrozen(const Output& variable) const {
  if (!is_frozen) return;
  throw Error(Code::kFailedPrecondition,
              fmt::format("variable '{}' cannot be written: the session is "
                          "frozen",
                          variable.name()));
}

void Session::Write(const Output& variable, const Tensor& value) {
  Impl::RequireVariable(variable);
  const OwnTurn turn(*impl_);
  MutexLock lock(impl_->cache_mutex);  // so that nobody freezes it meanwhile
  impl_->RequireNotFrozen(variable);
  const auto check = [&] {
    if (TensorTypeOf(value) == variable.type()) return;
    throw Error(Code::kInvalidArgument,
                fmt::format("variable '{}' is {}, the value {}",
                            variable.name(), variable.type().ToString(),
                            TensorTypeOf(value).ToString()));
  };
  if (SpreadsRows(variable.node())) {
    check();
    return impl_->WritePieces(variable, value);
  }
  if (const std::string far = impl_->FarHomeOf(variable); !far.empty()) {
    check();
    ThrowIfError(impl_->cluster->Write(far, variable.node().origin(), value));
    return;
  }
  auto [found, home] = impl_->Find(variable);
  check();
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
  if (variable.valid() && SpreadsRows(variable.node())) {
    return impl_->HavePieces(variable);
  }
  if (const std::string far = impl_->FarHomeOf(variable); !far.empty()) {
    return impl_->cluster->IsInitialized(far, variable.node().origin())
        .ValueOrThrow();
  }
  const OwnTurn turn(*impl_);
  const Variable* found = impl_->Find(variable).variable;
  return found != nullptr && found->initialized;
}

bool Session::CanRead(const Output& variable) const {
  return impl_->options.task.empty() || impl_->FarHomeOf(variable).empty();
}

void Session::Freeze() {
  if (impl_->cluster != nullptr) {
    throw Error(Code::kUnimplemented,
                "a session with other tasks' devices cannot be frozen");
  }
  const Lanes::AllTurns alone(impl_->lanes);
  MutexLock lock(impl_->cache_mutex);
  if (!impl_->frozen) impl_->frozen.emplace();
  impl_->is_frozen = true;
  while (!impl_->cache.empty()) impl_->Retire();
}

}  // namespace sluice
