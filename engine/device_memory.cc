#include "engine/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/allocate.h"

namespace sluice {
namespace {

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
  return AllocateBytes(bytes);
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
                          AllocateBytes(here.bytes()));
  Tensor host = TensorIn(std::move(buffer), {here.dtype(), here.shape()});
  SLUICE_RETURN_IF_ERROR(Load(here, host));
  return host;
}

Status DeviceMemory::Load(const Tensor& here, Tensor& host) const {
  char* const to = static_cast<char*>(host.raw());
  const char* const from = static_cast<const char*>(here.raw());
  if (accelerator_ == nullptr) {
    if (host.bytes() > 0) std::memcpy(to, from, host.bytes());
    return {};
  }
  const auto copy = [&](char* pinned, size_t at, size_t bytes) -> Status {
    SLUICE_RETURN_IF_ERROR(
        accelerator_->CopyOut(Accelerator::kCompute, pinned, from + at, bytes));
    SLUICE_RETURN_IF_ERROR(accelerator_->Synchronize());
    std::memcpy(to + at, pinned, bytes);
    return {};
  };
  return InPieces(here.bytes(), copy);
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
  const Accelerator::Turn turn(*accelerator_);
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

}  // namespace sluice
