// Sources of examples.
#ifndef SLUICE_IO_SOURCES_DATASETS_H_
#define SLUICE_IO_SOURCES_DATASETS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/visibility.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

// The purpose that a model is run for; a data source picks its split by it.
enum class Mode : uint8_t { kTrain, kEval, kPredict };

// A source of one's own that is read from its begin to its end. One thread at a
// time. Functions may throw, which ends the iterator.
class Generator {
 public:
  virtual ~Generator() = default;
  // The next example, of new tensors, or false at the end, behind which it is
  // not called.
  virtual bool Next(Example* example) = 0;
  // Passes over n examples; returns how many there were. To be overridden where
  // there is a faster way than to make them: a training that is resumed skips
  // what it has seen.
  virtual int64_t Skip(int64_t n);
};

namespace datasets {

// The rows of the columns: tensors with the same first dimension. Throws
// Error(kInvalidArgument) when they differ. Positions are restored only in
// datasets of the same `identity`.
Dataset FromTensors(Example columns, std::string identity = "tensors");

// fn(0), fn(1), ..., fn(n - 1). fn is a pure function that returns new tensors
// each time, since maps may change them in place; where `threads` is more than
// 1, or 0, as MapOptions has it, it must be safe to call at the same time.
// Examples are not made before they are needed: a Shuffle of all holds their
// numbers. `identity` as above.
Dataset FromFunction(int64_t n, std::function<Example(int64_t)> fn,
                     std::string identity = "function", int threads = 1);

struct GeneratorOptions {
  std::string identity = "generator";  // as above
  // How many examples there are in each epoch; kInfinite where it never ends.
  // kDataLoss where that is not true.
  int64_t size = kUnknownCardinality;
  // Whether all epochs are the same, so that a Cache may follow.
  bool same_in_every_epoch = false;
};
// The examples that make(epoch) yields. Every generator of an epoch must yield
// the same. make may be called from several threads at the same time.
Dataset FromGenerator(
    std::function<std::unique_ptr<Generator>(uint64_t epoch)> make,
    GeneratorOptions options = {});

// The following are of datasets without Batch, in which no map may pass over
// bad examples; there must be one at least.

// Examples that have the tensors of one example of each, as far as the shortest
// goes. No two may have a tensor of the same name. Random steps with the same
// seed draw the same for all parts of an example.
Dataset Zip(std::span<const Dataset> inputs);
// The examples of the inputs, one input after another.
Dataset Concatenate(std::span<const Dataset> inputs);
// Each next example is from inputs[i] with a probability of weights[i] among
// those that have not ended, until all have. Which one is a function of the
// seed, the epoch and what was chosen before. Weights are positive.
Dataset Choose(std::span<const Dataset> inputs, std::span<const double> weights,
               uint64_t seed);

// LeCun's handwritten digits from the four IDX files in `dir`, plain or .gz:
// the 60,000 for kTrain, else the 10,000 for testing.
// image: uint8 [28,28,1], 0 paper, 255 ink; label: int64 [], 0..9.
// Throws Error: kNotFound, kDataLoss, kOutOfRange (a label above 9).
Dataset Mnist(const std::string& dir, Mode mode);

// The photographs of ten classes from the six files of CIFAR-10's binary
// version in `dir`, data_batch_1.bin to data_batch_5.bin for kTrain, else
// test_batch.bin. image: uint8 [32,32,3]; label: int64 [], 0..9.
// Throws Error: kNotFound, kDataLoss, kOutOfRange (a label above 9).
Dataset Cifar10(const std::string& dir, Mode mode);

// Digits drawn by io/sources/digits.h, not real data: `count` of them, the same
// for every machine. Names, dtypes and shapes as Mnist.
Dataset SyntheticDigits(int64_t count, uint64_t seed);

}  // namespace datasets
}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_DATASETS_H_
