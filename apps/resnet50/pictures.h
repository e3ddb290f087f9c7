// The pictures that resnet50 trains on, evaluates on and predicts for, as its
// flags say: synthetic ones, CIFAR-10's, or those of a folder, as files, in
// records or in tar archives.
#ifndef SLUICE_APPS_RESNET50_PICTURES_H_
#define SLUICE_APPS_RESNET50_PICTURES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "models/run_context.h"

namespace sluice::resnet50 {

// Tar archives count as records.
enum class Source : uint8_t { kSynthetic, kCifar10, kFolder, kRecords };
Source SourceOf(const RunContext& run);

// Whether pictures are CIFAR-sized (32 x 32) rather than ImageNet-sized
// (224 x 224).
bool Small(const RunContext& run);

// The value of a flag of ours. Throws Error, which is a wrong command line.
double FlagNumber(const RunContext& run, const char* flag, double least,
                  double most);

// A sub-folder of the folder --data, if there is one of that name.
std::optional<std::string> Part(const RunContext& run, const char* name);

// The part of the pictures that --validation-split keeps back.
double KeptBack(const RunContext& run);

// "image" uint8 [side,side,3] and "label" int64, for run.mode; for training
// shuffled, augmented and repeated. Throws Error for what is wrong with them.
Dataset Examples(const RunContext& run);

int64_t Classes(const RunContext& run);
// The names of the classes, for people; empty where they are not known.
std::vector<std::string> ClassNames(const RunContext& run);

// The weights of --class-weights, one for each class; empty without the flag.
std::vector<double> ClassWeights(const RunContext& run);

// The files that an evaluation reads, from their folder on; none where it does
// not read files.
std::vector<std::string> ExampleNames(const RunContext& run);

// The data that an evaluation is of: "test", "validation" or "training".
std::string EvaluatedOn(const RunContext& run);

}  // namespace sluice::resnet50

#endif  // SLUICE_APPS_RESNET50_PICTURES_H_
