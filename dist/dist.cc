#include "dist/dist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dist/collective/group.h"
#include "dist/collective/pieces.h"
#include "dist/launch_info.h"
#include "dist/mpi/mpi_group.h"
#include "dist/net/frame.h"
#include "engine/dtype.h"
#include "engine/runtime/collective.h"
#include "engine/shape.h"
#include "engine/status.h"

namespace sluice::dist {
namespace {

// What this process has joined, in one of the two ways; null: nothing.
using JobGroup =
    std::variant<std::shared_ptr<Group>, std::shared_ptr<MpiGroup>>;

JobGroup& Slot() {
  static JobGroup group;
  return group;
}

// A function of the one or the other.
template <typename Function>
auto OfJoined(const Function& function) {
  return std::visit(
      [&](const auto& group) {
        if (group == nullptr) {
          throw Error(Code::kFailedPrecondition,
                      "dist: Init has not been called");
        }
        return function(group);
      },
      Slot());
}

std::shared_ptr<Collective> Shared() {
  return OfJoined(
      [](const std::shared_ptr<Collective>& group) { return group; });
}

Collective& Joined() {
  return *Shared();
}

void RequireFirst() {
  const bool joined =
      std::visit([](const auto& group) { return group != nullptr; }, Slot());
  if (!joined) return;
  throw Error(Code::kFailedPrecondition, "dist: Init was called before");
}

// Tensors of as many bytes, and of other shapes or dtypes, are other
// collectives.
std::string Signature(std::string_view name, const Tensor& tensor) {
  return std::string(name) + " " + std::string(NameOf(tensor.dtype())) +
         tensor.shape().ToString();
}

// The others wait for this process, and learn why it does not come.
[[noreturn]] void Fail(Collective& group, const Status& error) {
  group.Leave(error);
  const Status broken = group.Check();
  throw Error(broken.ok() ? error : broken);
}

void Require(bool fits, Collective& group, std::string_view verb,
             std::string_view name, const Tensor& tensor,
             std::string_view wanted) {
  if (fits) return;
  Fail(group,
       InvalidArgument(fmt::format("{} '{}' of shape {}: wanted {}", verb, name,
                                   tensor.shape().ToString(), wanted)));
}

// What `root` has in `variable`; memory for that in the others.
Tensor ToBroadcast(Collective& group, const Session& session,
                   const Output& variable, int root) {
  if (variable.node().part_of() > 0) {
    Fail(group, InvalidArgument(fmt::format(
                    "broadcast of variable '{}': it is a part, of which every "
                    "process has another",
                    variable.name())));
  }
  try {
    return group.rank() == root ? session.Read(variable)
                                : Tensor(variable.dtype(), variable.shape());
  } catch (const Error& error) {
    Fail(group, error.status());
  }
}

}  // namespace

void Init(const GroupOptions& options) {
  RequireFirst();
  std::optional<LaunchInfo> info = ReadLaunchInfo().ValueOrThrow();
  if (info && info->roster_fd >= 0) {
    throw Error(Code::kUnimplemented,
                "dist: sluicerun --elastic is for trainings by the Trainer, "
                "whose state goes on with those that are left");
  }
  Slot() = std::shared_ptr<Group>(
      info ? Group::Join(*info, options).ValueOrThrow() : Group::Alone());
}

void InitByMpi(bool allow_plaintext) {
  RequireFirst();
  Slot() = std::shared_ptr<MpiGroup>(
      MpiGroup::Join({.allow_plaintext = allow_plaintext}).ValueOrThrow());
}

void Shutdown() {
  Slot() = JobGroup();
}

int Rank() {
  return Joined().rank();
}
int Size() {
  return Joined().size();
}
int LocalRank() {
  return OfJoined([](const auto& group) { return group->local_rank(); });
}
int LocalSize() {
  return OfJoined([](const auto& group) { return group->local_size(); });
}

Tensor AllReduce(std::string_view name, const Tensor& tensor, Reduction how) {
  Tensor result = tensor.Clone();
  ThrowIfError(Joined().AllReduce(Signature(name, tensor), result.dtype(),
                                  result.raw(), result.elements(), how));
  return result;
}

Tensor AllGather(std::string_view name, const Tensor& tensor) {
  Collective& group = Joined();
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

Tensor ReduceScatter(std::string_view name, const Tensor& tensor,
                     Reduction how) {
  Collective& group = Joined();
  const Shape& shape = tensor.shape();
  Require(shape.rank() > 0, group, "reduce-scatter", name, tensor,
          "a first dimension to share out");
  const Range own = Part(shape[0], group.size(), group.rank());
  const int64_t row = shape.elements(1, shape.rank());
  Tensor sum = tensor.Clone();
  ThrowIfError(group.ReduceScatter(Signature(name, tensor), sum.dtype(),
                                   sum.raw(), sum.elements(),
                                   std::max<int64_t>(row, 1), how));
  return sum.Rows(own.begin, own.begin + own.count).Clone();
}

Tensor AllToAll(std::string_view name, const Tensor& tensor) {
  Collective& group = Joined();
  const Shape& shape = tensor.shape();
  Require(
      shape.rank() > 0 && shape[0] % group.size() == 0, group, "all-to-all",
      name, tensor,
      fmt::format("a first dimension that is a multiple of {}", group.size()));
  Tensor all(tensor.dtype(), shape);
  ThrowIfError(group.AllToAll(
      Signature(name, tensor), tensor.raw(),
      static_cast<int64_t>(tensor.bytes()) / group.size(), all.raw()));
  return all;
}

Tensor Broadcast(std::string_view name, const Tensor& tensor, int root) {
  Collective& group = Joined();
  Tensor result = tensor.Clone();
  ThrowIfError(group.Broadcast(Signature(name, tensor), result.raw(),
                               static_cast<int64_t>(result.bytes()), root));
  return result;
}

void BroadcastVariables(Session& session, const std::vector<Output>& variables,
                        int root) {
  Collective& group = Joined();
  std::string names;
  for (const Output& variable : variables) names += variable.name() + "\n";
  const Tensor step =
      Broadcast(fmt::format("{} variables, whose names have the hash {:x},",
                            variables.size(), Key(names)),
                Tensor::Scalar(static_cast<int64_t>(session.step())), root);
  for (const Output& variable : variables) {
    Tensor value = ToBroadcast(group, session, variable, root);
    ThrowIfError(group.Broadcast(Signature(variable.name(), value), value.raw(),
                                 static_cast<int64_t>(value.bytes()), root));
    try {
      session.Write(variable, value);
    } catch (const Error& error) {
      Fail(group, error.status());
    }
  }
  session.set_step(static_cast<uint64_t>(step.IntAt(0)));
}

void Split(std::string_view name, int color, int key) {
  ThrowIfError(OfJoined(
      [&](const auto& group) { return group->Split(name, color, key); }));
}

std::shared_ptr<Collective> JobCollective() {
  return Shared();
}

int Join() {
  return OfJoined([](const auto& group) { return group->Follow(); })
      .ValueOrThrow();
}

void Barrier(std::string_view name) {
  ThrowIfError(Joined().Barrier(name));
}

}  // namespace sluice::dist
