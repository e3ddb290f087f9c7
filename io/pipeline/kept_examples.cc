#include "io/pipeline/kept_examples.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/semantics/random.h"
#include "io/cache/example_cache.h"
#include "io/pipeline/open_cache.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// How often at most what others have added is looked for.
constexpr int64_t kRefreshNanoseconds = 1'000'000'000;

// The tensor beside an example's own that says of what it is.
constexpr char kOf[] = "\nof";

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Clock::now().time_since_epoch())
      .count();
}

// No name has a NUL: paths do not.
std::string Of(std::string_view name, std::string_view version) {
  return fmt::format("{}{}{}", name, '\0', version);
}

Tensor Bytes(std::string_view text) {
  Tensor bytes(DType::kUInt8, {static_cast<int64_t>(text.size())});
  if (!text.empty()) std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

bool IsOf(const Example& example, std::string_view of) {
  if (!example.contains(kOf)) return false;
  const Tensor& bytes = example[kOf];
  return bytes.dtype() == DType::kUInt8 && bytes.bytes() == of.size() &&
         std::memcmp(bytes.raw(), of.data(), of.size()) == 0;
}

}  // namespace

struct KeptExamples::State {
  explicit State(const CacheOptions& options)
      : cache(OpenCache("KeptExamples", options, "kept examples")) {}

  // After a miss, now and then.
  void Refresh() {
    int64_t last = refreshed;
    const int64_t now = Now();
    if (now - last < kRefreshNanoseconds ||
        !refreshed.compare_exchange_strong(last, now)) {
      return;
    }
    cache->Refresh();
  }

  const std::unique_ptr<ExampleCache> cache;
  std::atomic<int64_t> refreshed = Now();
};

KeptExamples::KeptExamples(const CacheOptions& options)
    : state_(std::make_unique<State>(options)) {}
KeptExamples::~KeptExamples() = default;

std::optional<Example> KeptExamples::Find(std::string_view name,
                                          std::string_view version) {
  const std::string of = Of(name, version);
  const auto number = static_cast<int64_t>(HashName(name));
  auto found = state_->cache->Find(
      number, [&of](const Example& example) { return IsOf(example, of); });
  if (!found) {
    state_->Refresh();
    return std::nullopt;
  }
  Example example;
  for (auto& [tensor_name, tensor] : *found) {
    if (tensor_name != kOf) example.Set(tensor_name, std::move(tensor));
  }
  return example;
}

void KeptExamples::Add(std::string_view name, std::string_view version,
                       const Example& example) {
  Example with = example;
  with.Set(kOf, Bytes(Of(name, version)));
  state_->cache->Add(static_cast<int64_t>(HashName(name)), with);
}

int64_t KeptExamples::size() const {
  return state_->cache->size();
}

std::string KeptExamples::Trouble() const {
  return state_->cache->Trouble();
}

uint64_t KeptExamples::removed_bytes() const {
  return state_->cache->removed_bytes();
}

}  // namespace sluice
