// libsluice_mpi.so: the calls of dist/mpi/calls.h by an MPI. It knows nothing
// else of the library, and takes its numbers for bytes where MPI has no type.
#include <mpi.h>

#include <algorithm>
#include <cstdint>

#include "dist/mpi/calls.h"

namespace sluice::dist {
namespace {

// MPI counts in int. A multiple of every element's size.
constexpr int64_t kMost = int64_t{1} << 30;

MpiAdd add_halves = nullptr;
MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
MPI_Op add_float16 = MPI_OP_NULL, add_bfloat16 = MPI_OP_NULL;
bool began = false;  // by us, so that we end it

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

int FindPlace(MpiPlace* place) {
  int error = MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_size(MPI_COMM_WORLD, &place->size);
  }
  MPI_Comm host = MPI_COMM_NULL;
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED,
                                place->rank, MPI_INFO_NULL, &host);
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(host, &place->local_rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(host, &place->local_size);
  if (host != MPI_COMM_NULL) MPI_Comm_free(&host);
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
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int error = FindPlace(place);
  return Said(error == MPI_SUCCESS ? MakeHalves() : error);
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

const char* Sum(MpiElement element, void* data, int64_t count) {
  const auto [type, add, bytes] = Of(element);
  auto* at = static_cast<char*>(data);
  for (int64_t most = kMost / bytes; count > 0;) {
    const int64_t part = std::min(count, most);
    const int error = MPI_Allreduce(MPI_IN_PLACE, at, static_cast<int>(part),
                                    type, add, MPI_COMM_WORLD);
    if (error != MPI_SUCCESS) return Said(error);
    at += part * bytes;
    count -= part;
  }
  return nullptr;
}

const char* Largest(uint64_t* values, int count) {
  return Said(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, MPI_MAX,
                            MPI_COMM_WORLD));
}

const char* Broadcast(void* data, int64_t bytes, int root) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const int64_t part = std::min(bytes, kMost);
    const int error =
        MPI_Bcast(at, static_cast<int>(part), MPI_BYTE, root, MPI_COMM_WORLD);
    if (error != MPI_SUCCESS) return Said(error);
    at += part;
    bytes -= part;
  }
  return nullptr;
}

const char* AllGather(const void* mine, int64_t each, void* all) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto* const place = static_cast<char*>(all) + rank * each;
  if (place != mine) {
    const auto* const from = static_cast<const char*>(mine);
    std::copy(from, from + each, place);
  }
  if (each <= kMost / size) {
    return Said(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all,
                              static_cast<int>(each), MPI_BYTE,
                              MPI_COMM_WORLD));
  }
  for (int root = 0; root < size; ++root) {
    const char* const wrong =
        Broadcast(static_cast<char*>(all) + root * each, each, root);
    if (wrong != nullptr) return wrong;
  }
  return nullptr;
}

const char* AllToAll(const void* mine, int64_t each, void* all) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto* const from = static_cast<const char*>(mine);
  auto* const to = static_cast<char*>(all);
  const int64_t most = kMost / size;
  if (each <= most) {
    return Said(MPI_Alltoall(from, static_cast<int>(each), MPI_BYTE, to,
                             static_cast<int>(each), MPI_BYTE, MPI_COMM_WORLD));
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // Each in turn with every other, by messages of a countable length.
  for (int step = 0; step < size; ++step) {
    const int next = (rank + step) % size, before = (rank + size - step) % size;
    for (int64_t begin = 0; begin < each; begin += kMost) {
      const int part = static_cast<int>(std::min(kMost, each - begin));
      const int error =
          MPI_Sendrecv(from + next * each + begin, part, MPI_BYTE, next, 0,
                       to + before * each + begin, part, MPI_BYTE, before, 0,
                       MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS) return Said(error);
    }
  }
  return nullptr;
}

const char* End() {
  return began ? Said(MPI_Finalize()) : nullptr;
}

}  // namespace
}  // namespace sluice::dist

extern "C" __attribute__((visibility("default"))) const sluice::dist::MpiCalls*
sluice_mpi_calls() {
  static const sluice::dist::MpiCalls calls = {
      sluice::dist::kMpiVersion, &sluice::dist::Begin,
      &sluice::dist::Sum,        &sluice::dist::Largest,
      &sluice::dist::Broadcast,  &sluice::dist::AllGather,
      &sluice::dist::AllToAll,   &sluice::dist::End};
  return &calls;
}
