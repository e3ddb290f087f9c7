#include "tests/kernels/cuda/emulation/nccl.h"

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/dtype.h"
#include "kernels/cuda/vendor/nccl_ranks.h"
#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/nccl_call.h"

namespace sluice::cuda::emulation {
namespace {

struct Exchange {
  Call call;
  std::vector<std::string> given;
  int arrived = 0, left = 0;
};
struct World {
  int size = 0;
  std::vector<int> devices;                // by rank; -1: not here yet
  std::map<uint64_t, Exchange> exchanges;  // by their number
};
// A rank's, also for work that is still to be done.
struct Rank {
  std::shared_ptr<World> world;
  int rank = 0;
  uint64_t done = 0, recorded = 0;
  int64_t held = 0;  // by what has recorded exchanges
  bool aborted = false;
  ncclResult_t state = ncclSuccess;
  int in_progress = 0;  // for so many looks
};

NcclFault fault;
bool stays = false;
std::mt19937 delays;
bool delayed = false;
NcclCounts counts;
std::map<std::string, std::shared_ptr<World>>& Worlds() {
  static auto* worlds = new std::map<std::string, std::shared_ptr<World>>;
  return *worlds;
}

[[noreturn]] void Undefined(const Rank& rank, const char* what) {
  std::fprintf(stderr, "emulated NCCL, rank %d of %d: %s\n", rank.rank,
               rank.world->size, what);
  std::abort();
}

bool Happens(const Rank& me, bool called) {
  if (fault.kind == NcclFault::kNone || fault.rank != me.rank ||
      (fault.kind == NcclFault::kRefuses) != called) {
    return false;
  }
  return fault.after-- == 0;
}

void Sleep(unsigned microseconds) {
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(microseconds);
  std::thread([until] {
    std::this_thread::sleep_until(until);
    const Lock lock;
    Calls().Wake();
  }).detach();
  Calls().Await([&] { return std::chrono::steady_clock::now() >= until; });
}

// What a rank's stream does, with the lock.
cudaError_t Do(Rank& me, const Call& call, const void* in, void* out) {
  if (me.aborted) return cudaSuccess;
  World& world = *me.world;
  if (Happens(me, /*called=*/false)) {
    if (fault.kind == NcclFault::kFails) me.state = ncclSystemError;
    stays = fault.kind == NcclFault::kStays;
    if (fault.then) std::thread(fault.then).detach();
    fault.kind = NcclFault::kNone;
    Calls().Await([&] { return me.aborted && !stays; });
    return cudaSuccess;
  }
  const uint64_t number = me.done++;
  if (delayed && delays() % 2 == 0) Sleep(delays() % 1000);
  if (me.aborted) return cudaSuccess;
  const auto [at, first] = world.exchanges.try_emplace(number);
  Exchange& exchange = at->second;
  if (first) {
    exchange.call = call;
    exchange.given.resize(static_cast<size_t>(world.size));
  }
  if (!(exchange.call == call)) {
    Undefined(me, exchange.call.recording == call.recording
                      ? "the others are at another exchange"
                      : "the others do not replay the same recording");
  }
  Memory().Grant(DeviceMemory::kAll);
  exchange.given[static_cast<size_t>(me.rank)].assign(
      static_cast<const char*>(in), BytesGiven(call, world.size));
  ++exchange.arrived;
  Calls().Wake();
  Calls().Await([&] { return exchange.arrived == world.size || me.aborted; });
  Memory().Grant(DeviceMemory::kAll);
  if (exchange.arrived < world.size) return cudaSuccess;
  Finish(call, exchange.given, me.rank, out);
  ++counts.done;
  if (call.recording != 0) ++counts.replayed;
  if (++exchange.left == world.size) world.exchanges.erase(number);
  return cudaSuccess;
}

// What a recording keeps of a rank.
std::shared_ptr<void> Hold(const std::shared_ptr<Rank>& rank) {
  ++rank->held;
  return {rank.get(), [rank](void*) {
            const Lock lock;
            if (--rank->held == 0) Calls().Wake();
          }};
}

}  // namespace

void SetNcclFault(const NcclFault& to) {
  const Lock lock;
  fault = to;
}
void EndNcclFault() {
  const Lock lock;
  stays = false;
  Calls().Wake();
}
void SetNcclDelays(unsigned seed) {
  const Lock lock;
  delayed = seed != 0;
  delays.seed(seed);
}
NcclCounts NcclExchanges() {
  const Lock lock;
  return counts;
}

}  // namespace sluice::cuda::emulation

namespace emulation = sluice::cuda::emulation;
using emulation::Call;
using emulation::Calls;
using emulation::Lock;
using sluice::DeviceExchange;

struct ncclComm {
  std::shared_ptr<emulation::Rank> rank;
};

namespace {

// Of the thread: between ncclGroupStart and its end.
struct Pairs {
  bool open = false;
  std::vector<const void*> from;
  std::vector<void*> to;
  size_t count = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local Pairs pairs;

ncclResult_t AddCall(ncclComm_t comm, Call call, const void* in, void* out,
                     cudaStream_t stream) {
  const Lock lock;
  const std::shared_ptr<emulation::Rank> rank = comm->rank;
  if (rank->aborted) return ncclInvalidUsage;
  if (emulation::Happens(*rank, /*called=*/true)) {
    emulation::fault.kind = emulation::NcclFault::kNone;
    return ncclInternalError;
  }
  std::shared_ptr<void> held;
  if (emulation::Recorded(stream)) {
    call.recording = ++rank->recorded;
    held = emulation::Hold(rank);
  } else if (emulation::delayed) {
    rank->in_progress = static_cast<int>(emulation::delays() % 3);
  }
  emulation::Add(stream, {[=] { return emulation::Do(*rank, call, in, out); },
                          /*copies=*/true});
  return rank->in_progress > 0 ? ncclInProgress : ncclSuccess;
}

Call CallOf(DeviceExchange::Verb verb, size_t count, ncclDataType_t type,
            ncclRedOp_t op = ncclSum, int root = 0) {
  return {verb, type, op, root, count, 0};
}

ncclResult_t Join(emulation::Rank& rank, const std::string& id, int size) {
  std::shared_ptr<emulation::World>& world = emulation::Worlds()[id];
  if (world == nullptr) {
    world = std::make_shared<emulation::World>();
    world->size = size;
    world->devices.assign(static_cast<size_t>(size), -1);
  }
  rank.world = world;
  int& device = world->devices[static_cast<size_t>(rank.rank)];
  if (world->size != size || device != -1) return ncclInvalidArgument;
  device = emulation::CurrentDevice();
  return ncclSuccess;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "another error";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  return "emulated";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock;
  static uint64_t next = 0;
  ++next;
  *id = {};
  std::memcpy(id->internal, &next, sizeof(next));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  const Lock lock;
  if (config->blocking != 0) return ncclInvalidArgument;
  *comm = new ncclComm;
  (*comm)->rank = std::make_shared<emulation::Rank>();
  (*comm)->rank->rank = rank;
  const ncclResult_t joined =
      Join(*(*comm)->rank, std::string(id.internal, sizeof(id.internal)), size);
  return joined == ncclSuccess ? ncclInProgress : joined;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Lock lock;
  emulation::Rank& rank = *comm->rank;
  *state = rank.state;
  if (rank.state != ncclSuccess) return ncclSuccess;
  const std::vector<int>& devices = rank.world->devices;
  for (size_t r = 0; r < devices.size(); ++r) {
    if (devices[r] == -1) {
      *state = ncclInProgress;
      return ncclSuccess;
    }
    // "Duplicate GPU detected"
    for (size_t other = 0; other < r; ++other) {
      if (devices[other] == devices[r]) *state = ncclInvalidUsage;
    }
  }
  if (*state == ncclSuccess && rank.in_progress > 0) {
    --rank.in_progress;
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    const Lock lock;
    const std::shared_ptr<emulation::Rank> rank = comm->rank;
    Calls().Await([&] { return rank->held == 0; });
  }
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const Lock lock;
    comm->rank->aborted = true;
    Calls().Wake();
  }
  return ncclCommDestroy(comm);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return AddCall(comm, CallOf(DeviceExchange::kAllReduce, count, type, op), in,
                 out, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t each,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return AddCall(comm, CallOf(DeviceExchange::kAllGather, each, type), in, out,
                 stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t each,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return AddCall(comm, CallOf(DeviceExchange::kReduceScatter, each, type, op),
                 in, out, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return AddCall(comm,
                 CallOf(DeviceExchange::kBroadcast, count, type, ncclSum, root),
                 in, out, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return AddCall(comm, CallOf(DeviceExchange::kReduce, count, type, op, root),
                 in, out, stream);
}

// Of a group: to and from every rank, in order, of one size.
ncclResult_t ncclGroupStart() {
  pairs = {.open = true};
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  if (!pairs.open || type != ncclUint8 ||
      peer != static_cast<int>(pairs.from.size())) {
    return ncclInvalidUsage;
  }
  pairs.from.push_back(from);
  pairs.count = count;
  pairs.comm = comm;
  pairs.stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (!pairs.open || type != ncclUint8 || count != pairs.count ||
      comm != pairs.comm || stream != pairs.stream ||
      peer != static_cast<int>(pairs.to.size())) {
    return ncclInvalidUsage;
  }
  pairs.to.push_back(to);
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const Pairs all = std::exchange(pairs, {});
  const auto size = static_cast<size_t>(all.comm->rank->world->size);
  if (all.from.size() != size || all.to.size() != size) return ncclInvalidUsage;
  for (size_t r = 0; r < size; ++r) {
    if (all.from[r] != static_cast<const char*>(all.from[0]) + r * all.count ||
        all.to[r] != static_cast<char*>(all.to[0]) + r * all.count) {
      return ncclInvalidUsage;
    }
  }
  // NCCL wants other memory for what comes than for what goes.
  if (all.from[0] == all.to[0]) return ncclInvalidUsage;
  return AddCall(all.comm,
                 CallOf(DeviceExchange::kAllToAll, all.count, ncclUint8),
                 all.from[0], all.to[0], all.stream);
}

namespace sluice::cuda::emulation {

const DeviceGroups& EmulatedNccl() {
  static const Nccl nccl = {
      .GetErrorString = ncclGetErrorString,
      .GetLastError = ncclGetLastError,
      .GetUniqueId = ncclGetUniqueId,
      .CommInitRankConfig = ncclCommInitRankConfig,
      .CommGetAsyncError = ncclCommGetAsyncError,
      .CommDestroy = ncclCommDestroy,
      .CommAbort = ncclCommAbort,
      .AllReduce = ncclAllReduce,
      .AllGather = ncclAllGather,
      .ReduceScatter = ncclReduceScatter,
      .Broadcast = ncclBroadcast,
      .Reduce = ncclReduce,
      .Send = ncclSend,
      .Recv = ncclRecv,
      .GroupStart = ncclGroupStart,
      .GroupEnd = ncclGroupEnd,
  };
  static const DeviceGroups groups = {
      .check = [] { return Status(); },
      .make_id = [] { return NcclRanks::MakeId(nccl); },
      .join =
          [](const DevicePlace& place) {
            return NcclRanks::Join(nccl, place);
          }};
  return groups;
}

}  // namespace sluice::cuda::emulation
