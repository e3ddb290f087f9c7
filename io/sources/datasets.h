// Sources of examples.
#ifndef SLUICE_IO_DATASETS_H_
#define SLUICE_IO_DATASETS_H_

#include <cstdint>
#include <string>

#include "io/pipeline/dataset.h"

namespace sluice {

// What a model is run for; a data source picks its split by it.
enum class Mode : uint8_t { kTrain, kEval, kPredict };

namespace datasets {

// The rows of the columns: tensors with the same first dimension. Throws
// Error(kInvalidArgument) when they differ. Positions are restored only in
// datasets of the same `identity`.
Dataset FromTensors(Example columns, std::string identity = "tensors");

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

// Digits drawn by io/sources/digits.h, not real data: `count` of them, the same for
// every machine. Names, dtypes and shapes as Mnist.
Dataset SyntheticDigits(int64_t count, uint64_t seed);

}  // namespace datasets
}  // namespace sluice

#endif  // SLUICE_IO_DATASETS_H_
