#include "engine/variable_store.h"

#include <fmt/format.h>

#include <utility>

namespace sluice {
namespace {

// The process's containers. One that nobody holds any more is forgotten when
// the next is asked for.
struct Containers {
  using Key = std::pair<std::string, std::string>;  // container, device
  Mutex mutex;
  std::map<Key, std::weak_ptr<VariableStore>> stores GUARDED_BY(mutex);
};

Containers& AllContainers() {
  static auto* const containers = new Containers;  // outlives all sessions
  return *containers;
}

}  // namespace

std::shared_ptr<VariableStore> VariableStore::Shared(
    const std::string& container, const std::string& device) {
  static const auto* const host = new DeviceMemory(nullptr);
  Containers& containers = AllContainers();
  MutexLock lock(containers.mutex);
  std::erase_if(containers.stores,
                [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<VariableStore>& known = containers.stores[{container, device}];
  std::shared_ptr<VariableStore> store = known.lock();
  if (store == nullptr) {
    store = std::make_shared<VariableStore>(*host, /*shared=*/true);
    known = store;
  }
  return store;
}

Result<Variable*> VariableStore::Declare(const std::string& name,
                                         const TensorType& type) {
  MutexLock lock(mutex_);
  auto it = variables_.find(name);
  if (it == variables_.end()) {
    auto variable = std::make_unique<Variable>();
    variable->name = name;
    const Result<Tensor> value = memory_.Allocate(type);
    if (!value.ok()) {
      return value.status().WithContext(fmt::format("variable '{}'", name));
    }
    variable->value = *value;
    it = variables_.emplace(name, std::move(variable)).first;
  }
  const Tensor& value = it->second->value;
  if (value.dtype() != type.dtype || !(value.shape() == type.shape)) {
    return InvalidArgument(fmt::format(
        "variable '{}' is {} in the graph, {} on the device", name,
        type.ToString(), TensorType{value.dtype(), value.shape()}.ToString()));
  }
  return it->second.get();
}

Variable* VariableStore::Find(std::string_view name) const {
  MutexLock lock(mutex_);
  auto it = variables_.find(name);
  return it == variables_.end() ? nullptr : it->second.get();
}

std::vector<Variable*> VariableStore::All() const {
  MutexLock lock(mutex_);
  std::vector<Variable*> all;
  for (const auto& [name, variable] : variables_) all.push_back(variable.get());
  return all;
}

size_t VariableStore::bytes() const {
  size_t total = 0;
  for (const Variable* variable : All()) total += variable->value.bytes();
  return total;
}

}  // namespace sluice
