// Examples kept under names, for maps that read what a number stands for.
#ifndef SLUICE_IO_PIPELINE_KEPT_EXAMPLES_H_
#define SLUICE_IO_PIPELINE_KEPT_EXAMPLES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/visibility.h"
#include "io/example.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

// Dataset::Cache keeps elements by their place, one after the other, so a
// Shuffle behind it holds them. Here is kept what a map makes, in whatever
// order and on however many threads it is called:
//
//   auto kept = std::make_shared<KeptExamples>(
//       CacheOptions{.folder = "/local/cache", .key = "encoded pictures 1"});
//   numbers.Shuffle(n, seed).Repeat().MapRandom(seed, [=](Example& e, auto key)
//   {
//     const std::string& path = paths[e["index"].IntAt(0)];
//     const std::string version = FileVersion(path).ValueOrThrow();
//     auto picture = kept->Find(path, version);
//     if (!picture) kept->Add(path, version, *(picture = ReadPicture(path)));
//     e = Augmented(*picture, key);
//   }, {.kept = kept});
//
// Never wrong, but it may forget. Thread-safe. In a folder it is shared with
// the processes of this host, also with those of later ones, which may be
// killed at any time.
class KeptExamples {
 public:
  // Throws Error(kInvalidArgument) as Dataset::Cache does: a folder needs a
  // key. Here that is all that decides what is made of a name and a version.
  explicit KeptExamples(const CacheOptions& options);
  ~KeptExamples();

  // The example that was added under the name; nullopt where there is none or
  // it cannot be read any more. One that was added with another version counts
  // as not there from now on. The result shares no memory with what was added.
  // Throws Error only when memory runs out.
  std::optional<Example> Find(std::string_view name, std::string_view version);
  // Keeps a copy where there is room and none of this version is there. What
  // cannot be kept is no error.
  void Add(std::string_view name, std::string_view version,
           const Example& example);

  // The number of examples kept, of any version, as far as is known.
  int64_t size() const;
  // Why some examples are not kept, in one sentence: the first reason. "" while
  // all are.
  std::string Trouble() const;
  // What was removed of the folder when it was opened, as beyond its limit.
  uint64_t removed_bytes() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_IO_PIPELINE_KEPT_EXAMPLES_H_
