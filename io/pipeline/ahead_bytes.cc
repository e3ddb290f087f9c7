#include "io/pipeline/ahead_bytes.h"

#include "engine/machine_memory.h"

namespace sluice {
namespace {

// A large element is forgotten over about so many.
constexpr size_t kMemory = 64;

}  // namespace

size_t DefaultAheadBytes() {
  constexpr size_t kPartOfFree = 4;
  static const size_t most = ReadMachineMemory().available / kPartOfFree;
  return most;
}

AheadBudget::AheadBudget(size_t most)
    : most_(most > 0 ? most : DefaultAheadBytes()) {}

bool AheadBudget::TryAdd(size_t bytes) {
  size_t held = held_;
  do {
    if (bytes > most_ || held > most_ - bytes) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes));
  return true;
}

bool AheadBytes::Begin(bool must, size_t* held) {
  if (must) {
    budget_->Add(expected_);
  } else if (!budget_->TryAdd(expected_)) {
    return false;
  }
  *held = expected_;
  total_ += expected_;
  return true;
}

void AheadBytes::Made(size_t bytes, size_t* held) {
  Count(bytes, held);
  expected_ = std::max(bytes, seen_ ? expected_ - expected_ / kMemory : 0);
  seen_ = true;
}

void AheadBytes::Count(size_t bytes, size_t* held) {
  budget_->Add(bytes);
  budget_->Remove(*held);
  total_ = total_ + bytes - *held;
  *held = bytes;
}

void AheadBytes::Clear() {
  budget_->Remove(total_);
  total_ = 0;
}

size_t HeldBytes(const Example& example) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : example) bytes += tensor.bytes();
  return bytes;
}

}  // namespace sluice
