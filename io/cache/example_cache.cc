#include "io/cache/example_cache.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "engine/thread_annotations.h"

namespace sluice {
namespace {

// What the map and the allocations take beside, about.
constexpr uint64_t kPerExample = 128, kPerTensor = 240;

uint64_t BytesOf(const Example& example) {
  uint64_t bytes = kPerExample;
  for (const auto& [name, tensor] : example) {
    bytes += kPerTensor + name.size() + tensor.bytes();
  }
  return bytes;
}

Example Clone(Example example) {
  for (auto& [name, tensor] : example) tensor = tensor.Clone();
  return example;
}

class InMemory : public ExampleCache {
 public:
  explicit InMemory(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  using ExampleCache::Find;
  std::optional<Example> Find(int64_t number, const Accepts& accepts) override {
    Example shared;
    {
      MutexLock lock(mutex_);
      const auto found = examples_.find(number);
      if (found == examples_.end()) return std::nullopt;
      if (accepts && !accepts(found->second)) {
        bytes_ -= BytesOf(found->second);
        examples_.erase(found);
        return std::nullopt;
      }
      shared = found->second;
    }
    return Clone(std::move(shared));
  }

  void Add(int64_t number, const Example& example) override {
    const uint64_t bytes = BytesOf(example);
    {
      MutexLock lock(mutex_);
      if (examples_.contains(number) || !HasRoom(bytes)) return;
    }
    Example copy = Clone(example);
    // Others may have added it, or taken the room, meanwhile.
    MutexLock lock(mutex_);
    if (examples_.contains(number) || !HasRoom(bytes)) return;
    examples_.emplace(number, std::move(copy));
    bytes_ += bytes;
  }

  int64_t size() const override {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(examples_.size());
  }

  std::string Trouble() const override {
    MutexLock lock(mutex_);
    return trouble_;
  }

 private:
  bool HasRoom(uint64_t bytes) REQUIRES(mutex_) {
    if (bytes <= max_bytes_ - bytes_) return true;
    if (trouble_.empty()) {
      trouble_ = fmt::format(
          "no more examples are kept in memory: the limit of {} bytes is "
          "reached",
          max_bytes_);
    }
    return false;
  }

  const uint64_t max_bytes_;
  mutable Mutex mutex_;
  std::unordered_map<int64_t, Example> examples_ GUARDED_BY(mutex_);
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;  // of them, at most max_bytes_
  std::string trouble_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ExampleCache> MemoryCache(uint64_t max_bytes) {
  return std::make_unique<InMemory>(max_bytes);
}

}  // namespace sluice
