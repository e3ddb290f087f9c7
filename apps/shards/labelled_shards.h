// The pictures of shards with the classes that they are of, as a training, an
// evaluation or predictions read them.
#ifndef SLUICE_APPS_SHARDS_LABELLED_SHARDS_H_
#define SLUICE_APPS_SHARDS_LABELLED_SHARDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/shards/picture_shards.h"
#include "io/example.h"
#include "io/pipeline/dataset.h"
#include "io/records/file_datasets.h"
#include "models/run_context.h"

namespace sluice::shards {

// The classes of a training.
struct TrainedClasses {
  int64_t count = 0;
  // Shards that have names of their own number their classes otherwise, if
  // these are in another order; empty: the numbers count.
  std::vector<std::string> names = {};
};

// What run.mode reads of the shards in a folder, or of those there that fit a
// pattern (io/files/file_pattern.h): "train", else "validation" (or "val",
// "test"), else "train", which an evaluation then is of and which is said, and
// so is how many there are. One that is missing or empty is an error unless
// --allow-missing-shards is given, or the pattern leaves it out. Nothing here
// throws but Error. Copies share what is open; thread-safe.
class LabelledShards {
 public:
  // Labels are of no matter for predictions, else the flag --label-offset is
  // asked (LabelOffset).
  LabelledShards(const RunContext& run, const std::string& path,
                 const TrainedClasses& classes, IfCompressed how);

  // Whether they can only be read in order: then there are no numbers, but
  // InOrder.
  bool in_order() const;
  // "bytes" and "place" of records (datasets::Records), for PictureOf, with
  // `meaning` and Identity() in what positions are of.
  Dataset InOrder(FileOptions options) const;
  // The picture of a record from InOrder, with the label and errors of Read.
  ShardPicture PictureOf(const Example& record) const;

  int64_t size() const;
  // Tells sets of pictures and their labels apart.
  std::string Identity() const;
  // Where a picture is, for messages: the file, and the place in it.
  std::string PlaceOf(int64_t number) const;
  // Reads the picture with a number from 0 to before size(); its label is the
  // class, 0 for predictions. Throws Error, naming the place, for a picture
  // that cannot be read and for a label that is none of the classes.
  ShardPicture Read(int64_t number) const;
  // Read in two steps: first with the label as it is in the shard, then its
  // class.
  ShardPicture ReadAsIs(int64_t number) const;
  int64_t ClassOf(int64_t label, int64_t number) const;
  // The number of pictures of each class of the training. Reads all pictures.
  // Errors as Read, but with `passes_over` not for pictures that are bad
  // (BadExamples::IsOne).
  std::vector<int64_t> CountClasses(bool passes_over) const;
  // Tells what is read of them from what is in files of their names at any
  // other time. kUnavailable where one has changed since it was opened, or
  // another file is there now, and the errors of FileVersion and of Read.
  Result<std::string> Version() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// The data that an evaluation of such shards is of: "test" or "training".
std::string ShardsEvaluatedOn(const RunContext& run, const std::string& path,
                              IfCompressed how);

}  // namespace sluice::shards

#endif  // SLUICE_APPS_SHARDS_LABELLED_SHARDS_H_
