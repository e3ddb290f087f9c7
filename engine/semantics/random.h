// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// Element i of a random tensor is a pure function of (stream, i): the same on
// every device and thread count, after a resume and when recomputed.
#ifndef SLUICE_ENGINE_SEMANTICS_RANDOM_H_
#define SLUICE_ENGINE_SEMANTICS_RANDOM_H_

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "engine/dtype.h"
#include "engine/semantics/scalar.h"

// Compiled for the CPU, and by nvcc for the GPU too.
#ifdef __CUDACC__
#define SLUICE_RANDOM_FN __host__ __device__
#else
#define SLUICE_RANDOM_FN
#endif

namespace sluice {

// n values; a std::array that accelerators know.
template <typename T, int n>
struct LaneArray {
  T at[n];

  SLUICE_RANDOM_FN constexpr T& operator[](int i) { return at[i]; }
  SLUICE_RANDOM_FN constexpr const T& operator[](int i) const { return at[i]; }
  constexpr const T* data() const { return at; }
  friend constexpr auto operator<=>(const LaneArray&,
                                    const LaneArray&) = default;
};
using PhiloxBlock = LaneArray<uint32_t, 4>;
using PhiloxKey = LaneArray<uint32_t, 2>;

// The 128 random bits at one counter.
SLUICE_RANDOM_FN constexpr PhiloxBlock Philox(PhiloxBlock counter,
                                              PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// FNV-1a, 64 bits.
constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

// The random bits of one op at one step: an infinite array of blocks. Immutable
// and cheap to copy.
class RandomStream {
 public:
  // name_hash: HashName of the op's original name.
  SLUICE_RANDOM_FN constexpr RandomStream(uint64_t seed, uint64_t name_hash,
                                          uint64_t step, uint32_t replica) {
    const PhiloxKey seed_key = {Low(seed), High(seed)};
    PhiloxBlock mixed = Philox(
        {Low(name_hash), High(name_hash), Low(step), High(step)}, seed_key);
    mixed[0] ^= replica;
    mixed = Philox(mixed, seed_key);
    key_ = {mixed[0], mixed[1]};
    salt_ = mixed[2];
  }

  // Parts of every block's key and counter, for code that computes many blocks
  // at a time.
  constexpr const PhiloxKey& key() const { return key_; }
  constexpr uint32_t salt() const { return salt_; }

  // Block i; `draw` numbers further independent blocks of the same i.
  SLUICE_RANDOM_FN constexpr PhiloxBlock Block(uint64_t i,
                                               uint32_t draw = 0) const {
    return Philox({Low(i), High(i), draw, salt_}, key_);
  }

 private:
  SLUICE_RANDOM_FN static constexpr uint32_t Low(uint64_t v) {
    return static_cast<uint32_t>(v);
  }
  SLUICE_RANDOM_FN static constexpr uint32_t High(uint64_t v) {
    return static_cast<uint32_t>(v >> 32);
  }

  PhiloxKey key_{};
  uint32_t salt_ = 0;
};

// A multiple of what each distribution draws from one block: a tensor may begin
// at such an element of a larger one.
inline constexpr int64_t kRandomAlignment = 4;

// Distributions. Each has kLanes, the elements that one block (one value of
// the counter) yields, and Lanes(), which computes them.

// In [0, 1): multiples of 2^-24 for float, of 2^-53 for double.
template <typename T>
struct Uniform01;

template <>
struct Uniform01<float> {
  static constexpr int kLanes = 4;
  SLUICE_RANDOM_FN static LaneArray<float, 4> Lanes(const RandomStream& stream,
                                                    uint64_t i) {
    const PhiloxBlock b = stream.Block(i);
    LaneArray<float, 4> out{};
    for (int j = 0; j < 4; ++j) {
      out[j] = static_cast<float>(b[j] >> 8) * 0x1p-24f;
    }
    return out;
  }
};

template <>
struct Uniform01<double> {
  static constexpr int kLanes = 2;
  SLUICE_RANDOM_FN static double FromBits(uint32_t high, uint32_t low) {
    return static_cast<double>((uint64_t{high} << 21) | (low >> 11)) * 0x1p-53;
  }
  SLUICE_RANDOM_FN static LaneArray<double, 2> Lanes(const RandomStream& stream,
                                                     uint64_t i) {
    const PhiloxBlock b = stream.Block(i);
    return {FromBits(b[1], b[0]), FromBits(b[3], b[2])};
  }
};

// Two independent normals (mean 0, deviation 1) from two uniforms, the first
// in (0, 1], the second in [0, 1) (Box and Muller, 1958).
template <typename T>
SLUICE_RANDOM_FN LaneArray<T, 2> BoxMuller(T u, T v) {
  const T radius = scalar::Sqrt()(T(-2) * scalar::Log()(u));
  const T angle = T(6.283185307179586) * v;
  return {radius * scalar::Cos()(angle), radius * scalar::Sin()(angle)};
}

template <typename T>
struct StandardNormal;

template <>
struct StandardNormal<float> {
  static constexpr int kLanes = 4;
  SLUICE_RANDOM_FN static LaneArray<float, 4> FromBlock(const PhiloxBlock& b) {
    const auto pair = [](uint32_t u, uint32_t v) {
      return BoxMuller(static_cast<float>(u) * 0x1p-32f + 0x1p-33f,
                       static_cast<float>(v >> 8) * 0x1p-24f);
    };
    const LaneArray<float, 2> first = pair(b[0], b[1]);
    const LaneArray<float, 2> second = pair(b[2], b[3]);
    return {first[0], first[1], second[0], second[1]};
  }
  SLUICE_RANDOM_FN static LaneArray<float, 4> Lanes(const RandomStream& stream,
                                                    uint64_t i) {
    return FromBlock(stream.Block(i));
  }
};

template <>
struct StandardNormal<double> {
  static constexpr int kLanes = 2;
  SLUICE_RANDOM_FN static LaneArray<double, 2> FromBlock(const PhiloxBlock& b) {
    return BoxMuller(Uniform01<double>::FromBits(b[1], b[0]) + 0x1p-54,
                     Uniform01<double>::FromBits(b[3], b[2]));
  }
  SLUICE_RANDOM_FN static LaneArray<double, 2> Lanes(const RandomStream& stream,
                                                     uint64_t i) {
    return FromBlock(stream.Block(i));
  }
};

// A standard normal within [-2, 2]: element i takes the first normal of its
// own blocks (i, draw 0), (i, draw 1), ... that is.
template <typename T>
struct StandardTruncatedNormal {
  static constexpr int kLanes = 1;
  SLUICE_RANDOM_FN static LaneArray<T, 1> Lanes(const RandomStream& stream,
                                                uint64_t i) {
    for (uint32_t draw = 0;; ++draw) {
      const auto x = StandardNormal<T>::FromBlock(stream.Block(i, draw));
      for (int j = 0; j < StandardNormal<T>::kLanes; ++j) {
        if (x[j] >= T(-2) && x[j] <= T(2)) return {x[j]};
      }
    }
  }
};

// Uniform on [0, range), range >= 1: the upper half of a 64 x 64 bit product,
// so no value's probability is off by more than 2^-64.
struct UniformBelow {
  static constexpr int kLanes = 2;
  uint64_t range;

  SLUICE_RANDOM_FN LaneArray<uint64_t, 2> Lanes(const RandomStream& stream,
                                                uint64_t i) const {
    __extension__ using Wide = unsigned __int128;
    const PhiloxBlock b = stream.Block(i);
    const auto scale = [&](uint32_t high, uint32_t low) {
      const uint64_t bits = (uint64_t{high} << 32) | low;
      return static_cast<uint64_t>((Wide{bits} * range) >> 64);
    };
    return {scale(b[1], b[0]), scale(b[3], b[2])};
  }
};

// The largest T below hi, which is finite: rounding a number of [lo, hi) to T
// may reach hi, which does not belong to the interval.
template <typename T>
T GreatestBelow(ComputeType<T> hi) {
  using C = ComputeType<T>;
  T greatest = T(hi);
  while (static_cast<C>(greatest) >= hi) {
    if constexpr (std::is_floating_point_v<T>) {
      greatest = std::nextafter(greatest, -std::numeric_limits<T>::infinity());
    } else {  // Half, BFloat16
      constexpr uint16_t kSign = 0x8000;
      const bool zero = (greatest.bits | kSign) == kSign;
      const int away = (greatest.bits & kSign) != 0 ? 1 : -1;
      greatest.bits =
          static_cast<uint16_t>(zero ? kSign | 1 : greatest.bits + away);
    }
  }
  return greatest;
}

// Dropout drops an element when its 32 random bits are below this.
inline uint32_t DropThreshold(double rate) {
  return static_cast<uint32_t>(std::lround(std::min(rate, 1.0) * 4294967295.0));
}

// Element i of a distribution.
template <typename Distribution>
auto Draw(const Distribution& distribution, const RandomStream& stream,
          uint64_t i) {
  constexpr uint64_t kLanes = Distribution::kLanes;
  return distribution.Lanes(stream, i / kLanes)[static_cast<int>(i % kLanes)];
}

// Calls sink(i, element i) for i in [begin, end), computing each block once.
//   ForEachDraw(Uniform01<float>(), stream, begin, end,
//               [&](int64_t i, float u) { out[i] = u; });
template <typename Distribution, typename Sink>
void ForEachDraw(const Distribution& distribution, const RandomStream& stream,
                 int64_t begin, int64_t end, Sink&& sink) {
  constexpr int64_t kLanes = Distribution::kLanes;
  for (int64_t i = begin; i < end;) {
    const auto lanes =
        distribution.Lanes(stream, static_cast<uint64_t>(i / kLanes));
    const int64_t stop = i - i % kLanes + kLanes;
    for (; i < stop && i < end; ++i)
      sink(i, lanes[static_cast<int>(i % kLanes)]);
  }
}

}  // namespace sluice

#undef SLUICE_RANDOM_FN

#endif  // SLUICE_ENGINE_SEMANTICS_RANDOM_H_
