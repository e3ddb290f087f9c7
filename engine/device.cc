#include "engine/device.h"

#include <fmt/format.h>

#include <charconv>

namespace sluice {

std::string DeviceName::ToString() const {
  return fmt::format("/{}:{}", NameOf(type), index);
}

Result<DeviceName> ParseDeviceName(std::string_view name) {
  for (DeviceType type :
       {DeviceType::kCpu, DeviceType::kCuda, DeviceType::kNull}) {
    const std::string prefix = fmt::format("/{}:", NameOf(type));
    if (!name.starts_with(prefix)) continue;
    const std::string_view digits = name.substr(prefix.size());
    int index = -1;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() &&
        index >= 0) {
      return DeviceName{type, index};
    }
  }
  return InvalidArgument(fmt::format(
      "unknown device '{}'; devices are named like /cpu:0 or /null:0", name));
}

Result<Variable*> VariableStore::Declare(const std::string& name,
                                         const TensorType& type) {
  MutexLock lock(mutex_);
  auto it = variables_.find(name);
  if (it == variables_.end()) {
    auto variable = std::make_unique<Variable>();
    variable->name = name;
    variable->value = Tensor(type.dtype, type.shape);
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

Status Arena::Reserve(size_t bytes) {
  if (bytes <= bytes_) return {};
  buffer_.reset();  // before the new one: they need not live side by side
  bytes_ = 0;
  ++generation_;
  try {
    buffer_ = AllocateBuffer(bytes);
  } catch (const Error& error) {
    return error.status().WithContext("intermediate values of one step");
  }
  bytes_ = bytes;
  return {};
}

}  // namespace sluice
