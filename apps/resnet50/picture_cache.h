// The cache of --cache: keeps pictures so that they are read, or read and
// decoded, once.
#ifndef SLUICE_APPS_RESNET50_PICTURE_CACHE_H_
#define SLUICE_APPS_RESNET50_PICTURE_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/resnet50/sizing.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "io/example.h"
#include "io/pipeline/kept_examples.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

// A picture as its source has it.
struct EncodedPicture {
  std::string bytes;  // of a file
  int64_t label = 0;  // as it is there
  std::string name;   // for messages
};

struct SizedPicture {
  Tensor image;
  int64_t label = 0;
};

// Thread-safe.
class PictureCache {
 public:
  enum class Stage : uint8_t { kBytes, kImage };

  // The cache that --cache, --cache-stage and --cache-limit ask for, the same
  // one for the same flags, with a note when it is opened; null without
  // --cache. Throws Error for a wrong command line, as Check does without
  // opening it.
  static std::shared_ptr<PictureCache> Of(const RunContext& run);
  static void Check(const RunContext& run);

  PictureCache(std::shared_ptr<KeptExamples> kept, Stage stage);

  // The source of one picture, which is read only if it is not kept.
  struct Source {
    std::string name;  // a path, or a place in one
    // The content that it had when its folder was listed for this epoch, if
    // that is known: what is kept of it is good, and nobody is asked.
    std::string listed = {};
    // Tells which content the picture has, if that is known; else it is not
    // kept. Called before and after it is read.
    std::function<Result<std::string>()> version;
    std::function<EncodedPicture()> read;  // may throw Error
  };
  // The picture as sizing(bytes, name, key) makes it, to the bit. `context`,
  // unless empty, begins the messages of its errors. Throws Error for a picture
  // that is bad or cannot be read.
  SizedPicture Get(const Source& source, const Sizing& sizing, uint64_t key,
                   const std::string& context = "");

  // For MapOptions.
  const std::shared_ptr<KeptExamples>& kept() const { return kept_; }

 private:
  Example FindOrRead(const Source& source, const Sizing& sizing,
                     const std::string& context);
  Example Read(const Source& source, const Sizing& sizing,
               const std::string& context) const;

  const std::shared_ptr<KeptExamples> kept_;
  const Stage stage_;
};

// The versions of files (FileVersion), in their order, as the listings of their
// folders say; "" where they do not.
std::vector<std::string> ListedVersions(const std::vector<std::string>& paths);

// A path, or a quoted place as messages have it, from the root on.
std::string FromRoot(const std::string& place);

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_PICTURE_CACHE_H_
