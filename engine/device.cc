#include "engine/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <random>

namespace sluice {

std::string DeviceName::ToString() const {
  const std::string here = fmt::format("/{}:{}", NameOf(type), index);
  return job.empty() ? here : fmt::format("/job:{}/task:{}{}", job, task, here);
}

namespace {

// Takes "<prefix>7" off the front of `text`; nothing if it is not there.
std::optional<int> TakeNumber(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return std::nullopt;
  const char* const begin = text->data() + prefix.size();
  const char* const end = text->data() + text->size();
  int number = -1;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text->remove_prefix(stop - text->data());
  return number;
}

// Takes "/job:worker" off the front of `text`: small letters, digits and "_",
// a letter first. Empty if it is not there.
std::string TakeJob(std::string_view* text) {
  constexpr std::string_view kPrefix = "/job:";
  if (!text->starts_with(kPrefix)) return "";
  const std::string_view rest = text->substr(kPrefix.size());
  const std::string_view name = rest.substr(
      0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"));
  if (name.empty() || name[0] < 'a') return "";
  text->remove_prefix(kPrefix.size() + name.size());
  return std::string(name);
}

std::optional<DeviceName> Parsed(std::string_view text) {
  DeviceName name;
  name.job = TakeJob(&text);
  if (!name.job.empty()) {
    const std::optional<int> task = TakeNumber(&text, "/task:");
    if (!task) return std::nullopt;
    name.task = *task;
  }
  for (DeviceType type :
       {DeviceType::kCpu, DeviceType::kCuda, DeviceType::kNull}) {
    const std::optional<int> index =
        TakeNumber(&text, fmt::format("/{}:", NameOf(type)));
    if (!index || !text.empty()) continue;
    name.type = type;
    name.index = *index;
    return name;
  }
  return std::nullopt;
}

}  // namespace

Result<DeviceName> ParseDeviceName(std::string_view name) {
  if (const std::optional<DeviceName> parsed = Parsed(name)) return *parsed;
  return InvalidArgument(fmt::format(
      "unknown device '{}'; devices are named like /cpu:0, /gpu:0 or /null:0, "
      "in a cluster like /job:worker/task:0/cpu:0",
      name));
}

namespace {

uint64_t NewIncarnation() {
  std::random_device random;
  uint64_t number = 0;
  while (number == 0) number = uint64_t{random()} << 32 | random();
  return number;
}

// AllocateBuffer throws.
Result<std::shared_ptr<void>> AllocateOnHost(size_t bytes) {
  try {
    return AllocateBuffer(bytes);
  } catch (const Error& error) {
    return error.status();
  }
}

Tensor TensorIn(std::shared_ptr<void> buffer, const TensorType& type) {
  void* const data = buffer.get();
  return Tensor(type.dtype, type.shape, std::move(buffer), data);
}

}  // namespace

Result<std::shared_ptr<void>> DeviceMemory::Allocate(size_t bytes) const {
  if (accelerator_ != nullptr) {
    SLUICE_RETURN_IF_ERROR(accelerator_->Use());
    return accelerator_->Allocate(bytes);
  }
  return AllocateOnHost(bytes);
}

Result<Tensor> DeviceMemory::Allocate(const TensorType& type) const {
  if (!type.shape.concrete()) {
    return InvalidArgument(fmt::format(
        "a tensor needs a concrete shape, got {}", type.ToString()));
  }
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<void> buffer, Allocate(type.bytes()));
  return TensorIn(std::move(buffer), type);
}

Result<Tensor> DeviceMemory::Upload(const Tensor& host) const {
  if (accelerator_ == nullptr) return host;
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<void> buffer, Allocate(host.bytes()));
  Tensor here = TensorIn(std::move(buffer), {host.dtype(), host.shape()});
  SLUICE_RETURN_IF_ERROR(Store(host, here));
  return here;
}

Result<Tensor> DeviceMemory::Download(const Tensor& here) const {
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<void> buffer,
                          AllocateOnHost(here.bytes()));
  Tensor host = TensorIn(std::move(buffer), {here.dtype(), here.shape()});
  if (accelerator_ == nullptr) {
    if (host.bytes() > 0) std::memcpy(host.raw(), here.raw(), host.bytes());
    return host;
  }
  char* const to = static_cast<char*>(host.raw());
  const char* const from = static_cast<const char*>(here.raw());
  const auto copy = [&](char* pinned, size_t at, size_t bytes) -> Status {
    SLUICE_RETURN_IF_ERROR(
        accelerator_->CopyOut(Accelerator::kCompute, pinned, from + at, bytes));
    SLUICE_RETURN_IF_ERROR(accelerator_->Synchronize());
    std::memcpy(to + at, pinned, bytes);
    return {};
  };
  SLUICE_RETURN_IF_ERROR(InPieces(here.bytes(), copy));
  return host;
}

Status DeviceMemory::Store(const Tensor& host, Tensor& here) const {
  char* const to = static_cast<char*>(here.raw());
  const char* const from = static_cast<const char*>(host.raw());
  if (accelerator_ == nullptr) {
    if (host.bytes() > 0) std::memcpy(to, from, host.bytes());
    return {};
  }
  return InPieces(host.bytes(),
                  [&](char* pinned, size_t at, size_t bytes) -> Status {
                    std::memcpy(pinned, from + at, bytes);
                    SLUICE_RETURN_IF_ERROR(accelerator_->CopyIn(
                        Accelerator::kCompute, to + at, pinned, bytes));
                    return accelerator_->Synchronize();
                  });
}

Status DeviceMemory::InPieces(
    size_t bytes,
    const std::function<Status(char* pinned, size_t offset, size_t bytes)>&
        copy) const {
  constexpr size_t kPiece = size_t{4} << 20;
  if (bytes == 0) return {};
  SLUICE_RETURN_IF_ERROR(accelerator_->Use());
  if (pinned_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(pinned_, accelerator_->AllocatePinned(kPiece));
  }
  for (size_t at = 0; at < bytes; at += kPiece) {
    SLUICE_RETURN_IF_ERROR(copy(static_cast<char*>(pinned_.get()), at,
                                std::min(kPiece, bytes - at)));
  }
  return {};
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

Status Arena::Reserve(size_t bytes) {
  if (bytes <= bytes_) return {};
  buffer_.reset();  // before the new one: they need not live side by side
  bytes_ = 0;
  ++generation_;
  Result<std::shared_ptr<void>> buffer = memory_.Allocate(bytes);
  if (!buffer.ok()) {
    return buffer.status().WithContext("intermediate values of one step");
  }
  buffer_ = *std::move(buffer);
  bytes_ = bytes;
  return {};
}

Device::Device(DeviceName name, std::unique_ptr<Accelerator> accelerator)
    : name_(std::move(name)),
      incarnation_(NewIncarnation()),
      accelerator_(std::move(accelerator)),
      memory_(accelerator_.get()),
      variables_(memory_),
      arena_(memory_) {}

Result<std::unique_ptr<Device>> Device::Open(const DeviceName& name,
                                             bool shared) {
  if (!name.job.empty()) {
    return NotFound(
        fmt::format("device '{}' is another process's", name.ToString()));
  }
  if (name.type != DeviceType::kCuda) return std::make_unique<Device>(name);
  Result<std::unique_ptr<Accelerator>> accelerator =
      OpenAccelerator(name.type, name.index, shared);
  if (!accelerator.ok()) {
    return accelerator.status().WithContext(
        fmt::format("device '{}'", name.ToString()));
  }
  return std::unique_ptr<Device>(new Device(name, *std::move(accelerator)));
}

}  // namespace sluice
