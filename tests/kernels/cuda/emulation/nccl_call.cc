#include "tests/kernels/cuda/emulation/nccl_call.h"

#include <cstring>

#include "engine/dtype.h"

namespace sluice::cuda::emulation {
namespace {

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T, typename Wide>
void Add(const std::vector<std::string>& given, const Call& call, char* out,
         size_t begin) {
  const auto scale = call.op == ncclAvg ? static_cast<Wide>(1) /
                                              static_cast<Wide>(given.size())
                                        : static_cast<Wide>(1);
  for (size_t i = 0; i < call.count; ++i) {
    Wide sum{};
    for (const std::string& one : given) {
      T x;
      std::memcpy(&x, one.data() + (begin + i) * sizeof(T), sizeof(T));
      sum += static_cast<Wide>(x) * scale;
    }
    const T result(sum);
    std::memcpy(out + i * sizeof(T), &result, sizeof(T));
  }
}

// `count` elements of the sum, from `begin` on.
void AddUp(const std::vector<std::string>& given, const Call& call, void* to,
           size_t begin) {
  char* const out = static_cast<char*>(to);
  switch (call.type) {
    case ncclFloat16:
      return Add<Half, float>(given, call, out, begin);
    case ncclBfloat16:
      return Add<BFloat16, float>(given, call, out, begin);
    case ncclFloat32:
      return Add<float, float>(given, call, out, begin);
    case ncclFloat64:
      return Add<double, double>(given, call, out, begin);
    case ncclInt32:
      return Add<uint32_t, uint32_t>(given, call, out, begin);
    default:
      return Add<uint64_t, uint64_t>(given, call, out, begin);
  }
}

}  // namespace

void Finish(const Call& call, const std::vector<std::string>& given, int of,
            void* to) {
  const auto rank = static_cast<size_t>(of);
  const size_t bytes = call.count * BytesOf(call.type);
  auto* const out = static_cast<char*>(to);
  switch (call.verb) {
    case DeviceExchange::kAllReduce:
      return AddUp(given, call, to, 0);
    case DeviceExchange::kReduce:
      if (of == call.root) AddUp(given, call, to, 0);
      return;
    case DeviceExchange::kReduceScatter:
      return AddUp(given, call, to, rank * call.count);
    case DeviceExchange::kBroadcast:
      std::memcpy(out, given[static_cast<size_t>(call.root)].data(), bytes);
      return;
    case DeviceExchange::kAllGather:
      for (size_t r = 0; r < given.size(); ++r) {
        std::memcpy(out + r * bytes, given[r].data(), bytes);
      }
      return;
    case DeviceExchange::kAllToAll:
      for (size_t r = 0; r < given.size(); ++r) {
        std::memcpy(out + r * bytes, given[r].data() + rank * bytes, bytes);
      }
      return;
  }
}

size_t BytesGiven(const Call& call, int size) {
  const bool all = call.verb == DeviceExchange::kReduceScatter ||
                   call.verb == DeviceExchange::kAllToAll;
  return call.count * BytesOf(call.type) *
         (all ? static_cast<size_t>(size) : 1);
}

}  // namespace sluice::cuda::emulation
