#include "engine/runtime/collective.h"

#include <cstddef>
#include <cstring>

namespace sluice {

Status Collective::Do(const CollectiveCall& call) {
  using Verb = CollectiveCall::Verb;
  auto* const data = static_cast<char*>(call.data);
  const int64_t each = call.bytes() / size();
  switch (call.verb) {
    case Verb::kAllReduce:
      return AllReduce(call.name, call.dtype, data, call.count, call.how);
    case Verb::kReduce: {
      // Along a ring, to have the sum in one place takes as many rounds as to
      // have it everywhere.
      const Status status =
          AllReduce(call.name, call.dtype, data, call.count, call.how);
      if (status.ok() && rank() != call.root && call.count > 0) {
        std::memset(data, 0, static_cast<size_t>(call.bytes()));
      }
      return status;
    }
    case Verb::kReduceScatter:
      return ReduceScatter(call.name, call.dtype, data, call.count, call.row,
                           call.how);
    case Verb::kBroadcast:
      return Broadcast(call.name, data, call.bytes(), call.root);
    case Verb::kAllGather:
      return AllGather(call.name, data + rank() * each, each, data);
    case Verb::kAllToAll:
      return AllToAll(call.name, data, each, data);
  }
  return Internal("no collective");
}

}  // namespace sluice
