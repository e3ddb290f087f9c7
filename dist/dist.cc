#include "dist/dist.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"

namespace sluice::dist {
namespace {

std::unique_ptr<Group>& Slot() {
  static std::unique_ptr<Group> group;
  return group;
}

Group& Joined() {
  if (Slot() == nullptr) {
    throw Error(Code::kFailedPrecondition, "dist: Init has not been called");
  }
  return *Slot();
}

// Tensors of as many bytes, and of other shapes or dtypes, are other
// collectives.
std::string Signature(std::string_view name, const Tensor& tensor) {
  return std::string(name) + " " + std::string(NameOf(tensor.dtype())) +
         tensor.shape().ToString();
}

}  // namespace

void Init(const GroupOptions& options) {
  if (Slot() != nullptr) {
    throw Error(Code::kFailedPrecondition, "dist: Init was called before");
  }
  std::optional<LaunchInfo> info = ReadLaunchInfo().ValueOrThrow();
  Slot() = info ? Group::Join(*std::move(info), options).ValueOrThrow()
                : Group::Alone();
}

void Shutdown() {
  Slot().reset();
}

int Rank() {
  return Joined().rank();
}
int Size() {
  return Joined().size();
}
int LocalRank() {
  return Joined().local_rank();
}
int LocalSize() {
  return Joined().local_size();
}

Tensor AllReduce(std::string_view name, const Tensor& tensor, Reduction how) {
  Group& group = Joined();
  Tensor result = tensor.Clone();
  ThrowIfError(group.AllReduce(Signature(name, tensor), &result, how));
  return result;
}

Tensor AllGather(std::string_view name, const Tensor& tensor) {
  Group& group = Joined();
  const Shape& shape = tensor.shape();
  std::vector<int64_t> dims = {group.size()};
  if (shape.rank() > 0) dims[0] *= shape[0];
  for (int i = 1; i < shape.rank(); ++i) dims.push_back(shape[i]);
  Tensor all(tensor.dtype(), Shape(dims));
  ThrowIfError(group.AllGather(Signature(name, tensor), tensor.raw(),
                               static_cast<int64_t>(tensor.bytes()),
                               all.raw()));
  return all;
}

Tensor Broadcast(std::string_view name, const Tensor& tensor, int root) {
  Group& group = Joined();
  Tensor result = tensor.Clone();
  ThrowIfError(group.Broadcast(Signature(name, tensor), result.raw(),
                               static_cast<int64_t>(result.bytes()), root));
  return result;
}

void Barrier(std::string_view name) {
  ThrowIfError(Joined().Barrier(name));
}

}  // namespace sluice::dist
