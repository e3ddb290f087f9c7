// Bounds the memory of elements that are made before they are asked for.
// Internal to io.
#ifndef SLUICE_IO_PIPELINE_AHEAD_BYTES_H_
#define SLUICE_IO_PIPELINE_AHEAD_BYTES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "io/example.h"

namespace sluice {

// Dataset::DefaultAheadBytes.
size_t DefaultAheadBytes();

// The bytes that the stages of one iterator may hold ahead together.
// Thread-safe.
class AheadBudget {
 public:
  // 0: DefaultAheadBytes().
  explicit AheadBudget(size_t most);

  size_t most() const { return most_; }
  // False, and nothing is added, where that would be more than most().
  bool TryAdd(size_t bytes);
  void Add(size_t bytes) { held_ += bytes; }
  void Remove(size_t bytes) { held_ -= bytes; }

 private:
  const size_t most_;
  std::atomic<size_t> held_ = 0;
};

// The bytes of one stage, which asks before it makes an element. An element
// that the stage's reader waits for may always be made: so none waits for ever,
// and no more is held than the budget has and one element for each stage. How
// large an element will be is taken from those before it. The caller holds the
// stage's lock.
class AheadBytes {
 public:
  explicit AheadBytes(std::shared_ptr<AheadBudget> budget)
      : budget_(std::move(budget)), expected_(budget_->most() / kFirst) {}
  ~AheadBytes() { Clear(); }
  AheadBytes(const AheadBytes&) = delete;
  AheadBytes& operator=(const AheadBytes&) = delete;

  // Whether another one may be made, as it always is where it `must`; *held is
  // then what is counted for it.
  bool Begin(bool must, size_t* held);
  // An element was made, and has so many bytes.
  void Made(size_t bytes, size_t* held);
  // The element was taken, or none was made.
  void Drop(size_t* held) { Count(0, held); }
  void Clear();

  // How many elements like the last ones fit into the budget, at least 1.
  size_t Fit() const {
    return std::max<size_t>(1,
                            budget_->most() / std::max<size_t>(1, expected_));
  }

 private:
  // While nothing is known, so many fit.
  static constexpr size_t kFirst = 16;

  void Count(size_t bytes, size_t* held);

  const std::shared_ptr<AheadBudget> budget_;
  size_t expected_;    // bytes of the next one
  bool seen_ = false;  // one that was made
  size_t total_ = 0;   // of all that are there
};

// The bytes of the example's tensors.
size_t HeldBytes(const Example& example);

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_AHEAD_BYTES_H_
