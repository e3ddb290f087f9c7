// libsluice_mpi.so: the calls of dist/mpi/calls.h by an MPI. It knows nothing
// else of the library, and takes its numbers for bytes where MPI has no type.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/mpi/calls.h"

namespace sluice::dist {
namespace {

// MPI counts in int. A multiple of every element's size.
constexpr int64_t kMost = int64_t{1} << 30;

MpiAdd add_halves = nullptr;
MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
MPI_Op add_float16 = MPI_OP_NULL, add_bfloat16 = MPI_OP_NULL;
bool began = false;  // by us, so that we end it

struct Communicator {
  MPI_Comm handle;  // MPI_COMM_NULL where this process is in none of them
  int rank, size;
};

// Of all calls of MPI, and of what follows.
std::mutex mutex;
// By number, MPI_COMM_WORLD first. Never destroyed: a program without Shutdown
// leaves its job when objects of this library are gone.
std::vector<Communicator>& communicators = *new std::vector<Communicator>;

Communicator Of(int number) {
  const std::lock_guard lock(mutex);
  return communicators[static_cast<size_t>(number)];
}

const char* Said(int error) {
  if (error == MPI_SUCCESS) return nullptr;
  thread_local char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) {
    return "an error without a text";
  }
  return text;
}

template <MpiElement kElement>
void AddHalves(void* in, void* sum, int* count, MPI_Datatype*) {
  add_halves(kElement, sum, in, *count);
}

int MakeHalves() {
  int error = MPI_Type_contiguous(2, MPI_BYTE, &two_bytes);
  if (error == MPI_SUCCESS) error = MPI_Type_commit(&two_bytes);
  if (error == MPI_SUCCESS) {
    error = MPI_Op_create(&AddHalves<MpiElement::kFloat16>, /*commute=*/1,
                          &add_float16);
  }
  if (error == MPI_SUCCESS) {
    error = MPI_Op_create(&AddHalves<MpiElement::kBFloat16>, /*commute=*/1,
                          &add_bfloat16);
  }
  return error;
}

// With a number of its own from then on.
int FindPlace(MPI_Comm communicator, MpiPlace* place) {
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  int error = MPI_Comm_rank(communicator, &place->rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(communicator, &place->size);
  MPI_Comm host = MPI_COMM_NULL;
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, place->rank,
                                MPI_INFO_NULL, &host);
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(host, &place->local_rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(host, &place->local_size);
  if (host != MPI_COMM_NULL) MPI_Comm_free(&host);
  place->communicator = static_cast<int>(communicators.size());
  communicators.push_back({communicator, place->rank, place->size});
  return error;
}

const char* Begin(MpiAdd add, MpiPlace* place) {
  add_halves = add;
  int flag = 0;
  MPI_Finalized(&flag);
  if (flag != 0) return "MPI has ended in this process, and begins once";
  MPI_Initialized(&flag);
  int threads = MPI_THREAD_SINGLE;
  if (flag != 0) {
    MPI_Query_thread(&threads);
  } else {
    const int error =
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
    if (error != MPI_SUCCESS) return Said(error);
    began = true;
  }
  if (threads < MPI_THREAD_SERIALIZED) {
    return "this MPI takes calls of one thread alone";
  }
  const int error = FindPlace(MPI_COMM_WORLD, place);
  return Said(error == MPI_SUCCESS ? MakeHalves() : error);
}

// By its blocking calls: all ranks are here, and have nothing else to do.
const char* Split(int communicator, int color, int key, MpiPlace* part) {
  const std::lock_guard lock(mutex);
  const MPI_Comm whole =
      communicators[static_cast<size_t>(communicator)].handle;
  MPI_Comm made = MPI_COMM_NULL;
  const int error =
      MPI_Comm_split(whole, color < 0 ? MPI_UNDEFINED : color, key, &made);
  *part = {};
  part->size = 0;
  if (error != MPI_SUCCESS) return Said(error);
  if (made != MPI_COMM_NULL) return Said(FindPlace(made, part));
  communicators.push_back({made, 0, 0});  // as the others, from now on several
  return nullptr;
}

// Whether all is done in one communicator, by one thread, so that it may wait
// within MPI. The same on all ranks of a communicator at the same collective:
// whoever is in a part was there when the whole was split.
bool IsOnlyOne() {
  return communicators.size() == 1;
}

// Looks for a while, then sleeps in between.
void Pause(int looks) {
  constexpr int kSpins = 1000;
  if (looks < kSpins) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Waits for them. Others have the lock in between.
int Finish(std::unique_lock<std::mutex>& lock, int count,
           MPI_Request* requests) {
  if (IsOnlyOne()) return MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  for (int looks = 0;; ++looks) {
    int done = 0;
    const int error = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    if (error != MPI_SUCCESS || done != 0) return error;
    lock.unlock();
    Pause(looks);
    lock.lock();
  }
}

// A collective of MPI's, blocking, or `begun` and waited for: MPI has two of
// each, which do not meet.
template <typename Whole, typename Begun, typename... Arguments>
int Together(int communicator, Whole whole, Begun begun,
             Arguments... arguments) {
  std::unique_lock lock(mutex);
  const MPI_Comm of = communicators[static_cast<size_t>(communicator)].handle;
  if (IsOnlyOne()) return whole(arguments..., of);
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = begun(arguments..., of, &request);
  return error == MPI_SUCCESS ? Finish(lock, 1, &request) : error;
}

struct Arithmetic {
  MPI_Datatype type;
  MPI_Op add;
  int64_t bytes;
};

Arithmetic Of(MpiElement element) {
  switch (element) {
    case MpiElement::kFloat32:
      return {MPI_FLOAT, MPI_SUM, 4};
    case MpiElement::kFloat64:
      return {MPI_DOUBLE, MPI_SUM, 8};
    case MpiElement::kInt32:  // without a sign, so that a sum may wrap
      return {MPI_UINT32_T, MPI_SUM, 4};
    case MpiElement::kInt64:
      return {MPI_UINT64_T, MPI_SUM, 8};
    case MpiElement::kFloat16:
      return {two_bytes, add_float16, 2};
    case MpiElement::kBFloat16:
      break;
  }
  return {two_bytes, add_bfloat16, 2};
}

const char* Sum(int communicator, MpiElement element, void* data,
                int64_t count) {
  const auto [type, add, bytes] = Of(element);
  auto* at = static_cast<char*>(data);
  for (int64_t most = kMost / bytes; count > 0;) {
    const int64_t part = std::min(count, most);
    const int error =
        Together(communicator, MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, at,
                 static_cast<int>(part), type, add);
    if (error != MPI_SUCCESS) return Said(error);
    at += part * bytes;
    count -= part;
  }
  return nullptr;
}

const char* Largest(int communicator, uint64_t* values, int count) {
  return Said(Together(communicator, MPI_Allreduce, MPI_Iallreduce,
                       MPI_IN_PLACE, values, count, MPI_UINT64_T, MPI_MAX));
}

const char* Broadcast(int communicator, void* data, int64_t bytes, int root) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const int64_t part = std::min(bytes, kMost);
    const int error = Together(communicator, MPI_Bcast, MPI_Ibcast, at,
                               static_cast<int>(part), MPI_BYTE, root);
    if (error != MPI_SUCCESS) return Said(error);
    at += part;
    bytes -= part;
  }
  return nullptr;
}

const char* AllGather(int communicator, const void* mine, int64_t each,
                      void* all) {
  const auto [handle, rank, size] = Of(communicator);
  auto* const place = static_cast<char*>(all) + rank * each;
  if (place != mine) {
    const auto* const from = static_cast<const char*>(mine);
    std::copy(from, from + each, place);
  }
  if (each <= kMost / size) {
    return Said(Together(communicator, MPI_Allgather, MPI_Iallgather,
                         MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all,
                         static_cast<int>(each), MPI_BYTE));
  }
  for (int root = 0; root < size; ++root) {
    const char* const wrong = Broadcast(
        communicator, static_cast<char*>(all) + root * each, each, root);
    if (wrong != nullptr) return wrong;
  }
  return nullptr;
}

// Bytes to one rank, and as many from another.
int Trade(int communicator, const char* out, int to, char* in, int from,
          int bytes) {
  std::unique_lock lock(mutex);
  const MPI_Comm of = communicators[static_cast<size_t>(communicator)].handle;
  MPI_Request requests[] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int error = MPI_Irecv(in, bytes, MPI_BYTE, from, 0, of, &requests[0]);
  if (error == MPI_SUCCESS) {
    error = MPI_Isend(out, bytes, MPI_BYTE, to, 0, of, &requests[1]);
  }
  return error == MPI_SUCCESS ? Finish(lock, 2, requests) : error;
}

const char* AllToAll(int communicator, const void* mine, int64_t each,
                     void* all) {
  const auto [handle, rank, size] = Of(communicator);
  const auto* const from = static_cast<const char*>(mine);
  auto* const to = static_cast<char*>(all);
  if (each <= kMost / size) {
    return Said(Together(communicator, MPI_Alltoall, MPI_Ialltoall, from,
                         static_cast<int>(each), MPI_BYTE, to,
                         static_cast<int>(each), MPI_BYTE));
  }
  // Each in turn with every other, by messages of a countable length.
  for (int step = 0; step < size; ++step) {
    const int next = (rank + step) % size, before = (rank + size - step) % size;
    for (int64_t begin = 0; begin < each; begin += kMost) {
      const int part = static_cast<int>(std::min(kMost, each - begin));
      const int error = Trade(communicator, from + next * each + begin, next,
                              to + before * each + begin, before, part);
      if (error != MPI_SUCCESS) return Said(error);
    }
  }
  return nullptr;
}

const char* End() {
  const std::lock_guard lock(mutex);
  return began ? Said(MPI_Finalize()) : nullptr;
}

}  // namespace
}  // namespace sluice::dist

extern "C" __attribute__((visibility("default"))) const sluice::dist::MpiCalls*
sluice_mpi_calls() {
  static const sluice::dist::MpiCalls calls = {
      sluice::dist::kMpiVersion, &sluice::dist::Begin,
      &sluice::dist::Split,      &sluice::dist::Sum,
      &sluice::dist::Largest,    &sluice::dist::Broadcast,
      &sluice::dist::AllGather,  &sluice::dist::AllToAll,
      &sluice::dist::End};
  return &calls;
}
