// The steps of chains, one function template for each form of operand.
#include "kernels/cpu/simd/chain.h"

#include "engine/semantics/scalar.h"
#include "kernels/cpu/simd/stream.h"
#include "kernels/cpu/simd/tables.h"

namespace sluice::SLUICE_ISA {
namespace {

// The functions compute on vectors as they stand.
namespace scalar {
template <>
inline constexpr bool kIsFloat<StreamVector> = true;
}  // namespace scalar

using simd::ChainFn;
using simd::ChainStep;

// Floats from what is read to what is fetched: about a memory access of time.
constexpr int64_t kAhead = 512;

template <int... I>
struct Steps {
  static constexpr int64_t kBlock = sizeof...(I) * kStreamLanes;
  static_assert(kBlock <= simd::kMostChainBlock);
  template <int>
  using Part = StreamVector;
  using Fn = void (*)(const ChainStep*, int64_t, Part<I>...);

  static ChainFn Hide(Fn fn) { return reinterpret_cast<ChainFn>(fn); }

  SLUICE_INLINE static void Next(const ChainStep* step, int64_t at,
                                 Part<I>... x) {
    ++step;
    reinterpret_cast<Fn>(step->run)(step, at, x...);
  }

  SLUICE_INLINE static const float* Operand(const ChainStep* step, int64_t at) {
    const float* p = step->operand + at * step->advance;
    constexpr int64_t kLine = 64 / sizeof(float);
    for (int64_t i = 0; i < kBlock; i += kLine) {
      __builtin_prefetch(p + kAhead + i);
    }
    return p;
  }

  static void Load(const ChainStep* step, int64_t at, Part<I>...) {
    const float* p = Operand(step, at);
    Next(step, at, LoadStream(p + I * kStreamLanes)...);
  }
  static void LoadScalar(const ChainStep* step, int64_t at, Part<I>...) {
    const StreamVector s = *step->operand - StreamVector{};
    Next(step, at, (static_cast<void>(I), s)...);
  }
  static void Keep(const ChainStep* step, int64_t at, Part<I>... x) {
    (StoreStream(step->result + I * kStreamLanes, x), ...);
    Next(step, at, x...);
  }
  template <bool kPast>
  static void Write(const ChainStep* step, int64_t at, Part<I>... x) {
    (StoreAs<kPast>(step->result + at + I * kStreamLanes, x), ...);
    Next(step, at, x...);
  }
  static void End(const ChainStep*, int64_t, Part<I>...) {}

  template <typename Op>
  static void Unary(const ChainStep* step, int64_t at, Part<I>... x) {
    Next(step, at, Op()(x)...);
  }
  template <typename Op>
  static void WithArray(const ChainStep* step, int64_t at, Part<I>... x) {
    const float* p = Operand(step, at);
    Next(step, at, Op()(x, LoadStream(p + I * kStreamLanes))...);
  }
  template <typename Op>
  static void ArrayWith(const ChainStep* step, int64_t at, Part<I>... x) {
    const float* p = Operand(step, at);
    Next(step, at, Op()(LoadStream(p + I * kStreamLanes), x)...);
  }
  template <typename Op>
  static void WithScalar(const ChainStep* step, int64_t at, Part<I>... x) {
    const StreamVector s = *step->operand - StreamVector{};
    Next(step, at, Op()(x, s)...);
  }
  template <typename Op>
  static void ScalarWith(const ChainStep* step, int64_t at, Part<I>... x) {
    const StreamVector s = *step->operand - StreamVector{};
    Next(step, at, Op()(s, x)...);
  }

  template <typename Op>
  static simd::ChainEntry UnaryEntry() {
    return {Op::kName, Hide(Unary<Op>), nullptr, nullptr, nullptr, nullptr};
  }
  template <typename Op>
  static simd::ChainEntry BinaryEntry() {
    return {Op::kName,           nullptr,
            Hide(WithArray<Op>), Hide(WithScalar<Op>),
            Hide(ArrayWith<Op>), Hide(ScalarWith<Op>)};
  }

  static void Run(const ChainStep* steps, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlock) {
      reinterpret_cast<Fn>(steps->run)(
          steps, at, (static_cast<void>(I), StreamVector{})...);
    }
  }
};
using Chain = Steps<0, 1, 2, 3, 4, 5, 6, 7>;

}  // namespace

void AddChains(simd::SimdKernels& table) noexcept {
  // Those cheap enough for their operands' way to matter.
  static const simd::ChainEntry entries[] = {
      Chain::UnaryEntry<scalar::Neg>(),
      Chain::UnaryEntry<scalar::Square>(),
      Chain::UnaryEntry<scalar::Relu>(),
      Chain::BinaryEntry<scalar::Add>(),
      Chain::BinaryEntry<scalar::Sub>(),
      Chain::BinaryEntry<scalar::Mul>(),
      Chain::BinaryEntry<scalar::Div>(),
      Chain::BinaryEntry<scalar::Maximum>(),
      Chain::BinaryEntry<scalar::Minimum>(),
      Chain::BinaryEntry<scalar::SquaredDifference>(),
      Chain::BinaryEntry<scalar::ReluGrad>()};
  table.chain = {.block = Chain::kBlock,
                 .load = Chain::Hide(Chain::Load),
                 .load_scalar = Chain::Hide(Chain::LoadScalar),
                 .keep = Chain::Hide(Chain::Keep),
                 .store = Chain::Hide(Chain::Write<false>),
                 .stream = Chain::Hide(Chain::Write<true>),
                 .end = Chain::Hide(Chain::End),
                 .entries = entries,
                 .num_entries = sizeof(entries) / sizeof(entries[0]),
                 .run = Chain::Run};
}

}  // namespace sluice::SLUICE_ISA
