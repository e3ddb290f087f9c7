// The places where Dataset::Cache keeps examples. Internal to io.
#ifndef SLUICE_IO_CACHE_EXAMPLE_CACHE_H_
#define SLUICE_IO_CACHE_EXAMPLE_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "io/example.h"

namespace sluice {

// Examples by number. It is never wrong, but may forget. Thread-safe. It shares
// no memory with the examples that come and go: what is behind it in the
// pipeline may change them in place (Dataset::Map), those put in as well as
// those found.
class ExampleCache {
 public:
  virtual ~ExampleCache() = default;

  // The example that was added under that number; nullopt where there is none,
  // or it cannot be read any more. One that is not accepted counts as not there
  // from now on, and another may be added; of several it is the first that is
  // accepted. Throws Error only when memory runs out.
  using Accepts = std::function<bool(const Example&)>;
  virtual std::optional<Example> Find(int64_t number,
                                      const Accepts& accepts) = 0;
  std::optional<Example> Find(int64_t number) { return Find(number, nullptr); }
  // Keeps a copy where there is room and none is there. What cannot be kept is
  // no error.
  virtual void Add(int64_t number, const Example& example) = 0;
  // Looks for what other processes have added since it was opened or called;
  // for the start of a pass.
  virtual void Refresh() {}
  // The number of numbers under which examples are known to be there.
  virtual int64_t size() const = 0;
  // Why some examples are not kept, one sentence: the first reason, always the
  // same from then on. "" as long as all are.
  virtual std::string Trouble() const = 0;
  // What was removed when it was opened, as beyond its limit.
  virtual uint64_t removed_bytes() const { return 0; }
};

// A cache in memory of up to `max_bytes`, counting tensors, their names and
// what it takes to hold them, about 400 bytes for a small one.
std::unique_ptr<ExampleCache> MemoryCache(uint64_t max_bytes);

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_EXAMPLE_CACHE_H_
