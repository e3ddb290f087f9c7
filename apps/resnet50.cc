// resnet50: trains and runs residual networks on photographs.
//
//   resnet50 train --data cifar10 --data-dir FOLDER --model resnet20
//   resnet50 predict --weights FILE.safetensors IMAGE...
//   resnet50 bench --batch-size 16
#include "models/zoo/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "graph/builder.h"
#include "io/file.h"
#include "io/image.h"
#include "io/image_list.h"
#include "models/cli/console.h"
#include "models/cli/main.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"

namespace {

using namespace sluice;  // NOLINT: a program of one file

// Of ImageNet's and CIFAR-10's training pictures, red, green and blue.
constexpr std::array<double, 3> kImageNetMean = {0.485, 0.456, 0.406};
constexpr std::array<double, 3> kImageNetDeviation = {0.229, 0.224, 0.225};
constexpr std::array<double, 3> kCifarMean = {0.4914, 0.4822, 0.4465};
constexpr std::array<double, 3> kCifarDeviation = {0.2470, 0.2435, 0.2616};

constexpr int64_t kResize = 256, kCrop = 224, kCifarSide = 32;
// Or one batch, where that is more.
constexpr int64_t kSyntheticPictures = 256;
constexpr int64_t kImageNetClasses = 1000;

const std::vector<std::string> kCifarNames = {
    "airplane", "automobile", "bird",  "cat",  "deer",
    "dog",      "frog",       "horse", "ship", "truck"};

enum class Source : uint8_t { kSynthetic, kCifar10, kFolder };

Source SourceOf(const RunContext& run) {
  const std::string& data = run.flag("data");
  if (data == "synthetic") return Source::kSynthetic;
  return data == "cifar10" ? Source::kCifar10 : Source::kFolder;
}

// Whether pictures are CIFAR-sized rather than ImageNet-sized.
bool Small(const RunContext& run) {
  return SourceOf(run) == Source::kCifar10 || IsCifarResNet(run.flag("model"));
}

// The value of a flag of ours. Throws Error, which is a wrong command line.
double Number(const RunContext& run, const char* flag, double least,
              double most) {
  const std::string& text = run.flag(flag);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--{}: wanted a number from {} to {}, got '{}'",
                            flag, least, most, text));
  }
  return value;
}

// --- Input -------------------------------------------------------------------

// A sub-folder of the folder given, if there is one of that name.
std::optional<std::string> Part(const RunContext& run, const char* name) {
  const std::string part = JoinPath(run.flag("data"), name);
  if (FileSystem::Posix().Exists(part)) return part;
  return std::nullopt;
}

double KeptBack(const RunContext& run) {
  return Number(run, "validation-split", 0, 0.9);
}

// What the folder has beside `val`; classes numbered as in the training if that
// is known.
ImageList BesideVal(const RunContext& run) {
  return ListImages(Part(run, "train").value_or(run.flag("data")),
                    run.class_names);
}

// Of these what is to be trained on, and, with --validation-split, kept back.
SplitList TrainingPictures(const RunContext& run) {
  const ImageList all = BesideVal(run);
  const double kept_back = KeptBack(run);
  SplitList split = SplitImages(all, kept_back);
  if (kept_back > 0 &&
      (split.training.paths.empty() || split.validation.paths.empty())) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--validation-split {}: too few pictures in '{}'",
                            kept_back, all.directory));
  }
  return split;
}

int64_t Classes(const RunContext& run) {
  if (const double given = Number(run, "classes", 0, 1e6); given > 0) {
    return static_cast<int64_t>(given);
  }
  if (SourceOf(run) == Source::kFolder) {
    if (const size_t known = run.class_names.size()) {
      return static_cast<int64_t>(known);
    }
    return TrainingPictures(run).training.classes;
  }
  return Small(run) ? 10 : kImageNetClasses;
}

// The pictures in `val`, with the numbers that their classes have in training.
ImageList ValPictures(const RunContext& run, const std::string& val) {
  std::vector<std::string> names = run.class_names;
  if (names.empty() && Part(run, "train")) {
    names = TrainingPictures(run).training.class_names;
    ImageList list = ListImages(val, names);
    if (names.empty() && !list.class_names.empty()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' has folders for classes, training has "
                              "numbers of a labels.csv",
                              val));
    }
    if (names.empty() && list.classes > Classes(run)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}' has pictures of class {}, training has {} "
                              "classes",
                              val, list.classes - 1, Classes(run)));
    }
    return list;
  }
  return ListImages(val, names);
}

// The pictures to evaluate on: those of `val`, or those kept back, or, where
// there are neither, those to train on.
ImageList OtherPictures(const RunContext& run) {
  if (const auto val = Part(run, "val")) return ValPictures(run, *val);
  SplitList split = TrainingPictures(run);
  return split.validation.paths.empty() ? split.training : split.validation;
}

// What the program reads in its mode. What can be wrong with the pictures to
// evaluate on is wrong before the first step; what is missing is said.
ImageList Pictures(const RunContext& run) {
  if (run.mode == Mode::kPredict) {  // labels do not matter
    return ListImages(
        Part(run, "val")
            .value_or(Part(run, "train").value_or(run.flag("data"))));
  }
  if (run.training()) {
    ImageList list = TrainingPictures(run).training;
    RunContext evaluation = run;
    evaluation.mode = Mode::kEval;
    evaluation.class_names = list.class_names;
    OtherPictures(evaluation);
    return list;
  }
  ImageList list = OtherPictures(run);
  if (const auto missing = ClassesWithoutImages(list); !missing.empty()) {
    console::Note(
        fmt::format("no pictures of {} of the {} classes in '{}', "
                    "such as '{}'",
                    missing.size(), list.classes, list.directory, missing[0]));
  }
  return list;
}

Dataset Shuffled(const Dataset& examples, const RunContext& run) {
  if (!run.training()) return examples;
  return examples.Shard(run.rank, run.size)
      .Shuffle(std::max<int64_t>(examples.cardinality(), 1), run.seed)
      .Repeat();
}

// Noise around a colour that depends on the class, so that there is something
// to learn.
Dataset SyntheticPictures(const RunContext& run) {
  const bool small = Small(run);
  const int64_t classes = small ? 10 : kImageNetClasses;
  ImageList list;
  for (int64_t i = std::max(kSyntheticPictures, run.batch_size); i > 0; --i) {
    list.labels.push_back(i * 7919 % classes);
  }
  list.paths.resize(list.labels.size());
  const Dataset indices = Shuffled(Indices(list, "tensors"), run);
  return indices.Map([small, classes](Example& example) {
    const int64_t side = small ? kCifarSide : kCrop;
    const auto label = example["label"].IntAt(0);
    const auto colour = static_cast<uint64_t>(label * 191 / classes);
    auto state = static_cast<uint64_t>(example["index"].IntAt(0));
    Tensor image(DType::kUInt8, {side, side, 3});
    for (uint8_t& value : image.values<uint8_t>()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<uint8_t>(colour + (state >> 58));
    }
    example = {{"image", std::move(image)}, {"label", example["label"]}};
  });
}

// Reads the picture that an index stands for.
class Reader {
 public:
  Reader(ImageList list, bool small, bool training)
      : list_(std::make_shared<const ImageList>(std::move(list))),
        small_(small),
        training_(training) {}

  void operator()(Example& example, uint64_t key) const {
    const std::string& path = list_->paths[example["index"].IntAt(0)];
    const Tensor picture = ReadImage(path).ValueOrThrow();
    const int64_t side = small_ ? kCifarSide : kCrop;
    const int64_t resize = small_ ? kCifarSide : kResize;
    example = {{"image", training_ ? RandomResizedCrop(picture, side, key)
                                   : ResizeAndCrop(picture, resize, side)},
               {"label", example["label"]}};
  }

 private:
  std::shared_ptr<const ImageList> list_;
  bool small_, training_;
};

Dataset FromFiles(ImageList list, const RunContext& run) {
  const Dataset indices = Shuffled(Indices(list), run);
  return indices.MapRandom(run.seed,
                           Reader(std::move(list), Small(run), run.training()));
}

Dataset Examples(const RunContext& run) {
  if (!run.files.empty()) {
    ImageList list;
    list.paths = run.files;
    list.labels.assign(run.files.size(), 0);
    return FromFiles(std::move(list), run);
  }
  switch (SourceOf(run)) {
    case Source::kSynthetic:
      return SyntheticPictures(run);
    case Source::kFolder:
      return FromFiles(Pictures(run), run);
    case Source::kCifar10:
      break;
  }
  Dataset cifar = Shuffled(datasets::Cifar10(run.data_dir, run.mode), run);
  if (!run.training()) return cifar;
  return cifar.MapRandom(run.seed, [](Example& example, uint64_t key) {
    example["image"] = RandomPadCrop(example["image"], 4, key);
  });
}

Dataset Input(const RunContext& run) {
  const RowwiseMap standardize =
      Small(run) ? Standardize("image", kCifarMean, kCifarDeviation)
                 : Standardize("image", kImageNetMean, kImageNetDeviation);
  return Examples(run).Map(standardize).Batch(run.batch_size).Prefetch(2);
}

// --- Model -------------------------------------------------------------------

ModelSpec Model(Scope& scope, const Features& in, const RunContext& run) {
  const Output label = in["label"];
  const Output logits =
      ResNet(scope, run.flag("model"), in["image"],
             {.classes = Classes(run), .training = run.training()});
  const double smoothing =
      run.training() ? Number(run, "label-smoothing", 0, 1) : 0;
  const Output loss = losses::SparseSoftmaxCrossEntropy(
      logits, label, {.label_smoothing = smoothing});
  ModelSpec spec = {.loss = loss,
                    .metrics = {{"accuracy", Accuracy(logits, label)}},
                    .exports = {{"probabilities", Softmax(logits)},
                                {"class", ArgMax(logits)}}};
  if (!Small(run)) {
    spec.metrics.emplace_back("top_5_accuracy", TopKAccuracy(logits, label, 5));
  }
  return spec;
}

// --- Training ----------------------------------------------------------------

LearningRate Rate(const RunContext& run) {
  const double rate = Number(run, "base-rate", 0, 1e6) *
                      static_cast<double>(run.batch_size) / 256;
  const int64_t steps = std::max<int64_t>(run.total_steps(), 1);
  // At most half of the steps: the rest must see a high rate too.
  const auto warm_up =
      std::min(static_cast<int64_t>(Number(run, "warm-up-epochs", 0, 1e6) *
                                    run.steps_per_epoch),
               steps / 2);
  const std::string& schedule = run.flag("schedule");
  const LearningRate falling =
      schedule == "cosine"       ? schedules::Cosine(rate, steps)
      : schedule == "polynomial" ? schedules::Polynomial(rate, steps, 0, 2)
                                 : LearningRate(rate);
  return warm_up > 0 ? schedules::WarmUp(warm_up, falling) : falling;
}

Optimizer Train(const RunContext& run) {
  Optimizer optimizer = optimizers::Nesterov(Rate(run), 0.9);
  if (const double decay = Number(run, "weight-decay", 0, 1); decay > 0) {
    optimizer = optimizer.With(gradients::WeightDecay(decay));
  }
  const double average = Number(run, "ema", 0, 1);
  return average > 0 ? optimizer.WithAverages(average) : optimizer;
}

// What a flag of ours is where none is given: for CIFAR-sized pictures and for
// others. 15 epochs of resnet20 on CIFAR-10 with these are the recipe whose
// result docs/performance.md records; the others follow torchvision's.
struct Default {
  const char* flag;
  const char* small;
  const char* large;
};
constexpr Default kDefaults[] = {{"base-rate", "0.4", "0.1"},
                                 {"warm-up-epochs", "2", "5"},
                                 {"weight-decay", "5e-4", "5e-5"},
                                 {"label-smoothing", "0", "0.1"}};

void Defaults(RunContext& run) {
  const bool small = Small(run);
  const Source source = SourceOf(run);
  for (const Default& value : kDefaults) {
    std::string& flag = run.flags[value.flag];
    if (flag.empty()) flag = small ? value.small : value.large;
  }
  for (const char* flag : {"weight-decay", "label-smoothing", "ema"}) {
    Number(run, flag, 0, 1);
  }
  for (const char* flag : {"base-rate", "warm-up-epochs", "classes"}) {
    Number(run, flag, 0, 1e6);
  }
  if (Number(run, "ema", 0, 1) == 1 ||
      Number(run, "label-smoothing", 0, 1) == 1) {
    throw Error(Code::kInvalidArgument,
                "--ema and --label-smoothing must be less than 1");
  }
  if (KeptBack(run) > 0) {
    if (source != Source::kFolder) {
      throw Error(Code::kInvalidArgument,
                  "--validation-split is for --data FOLDER");
    }
    if (const auto val = Part(run, "val")) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("--validation-split: there are pictures to "
                              "validate on already, in '{}'",
                              *val));
    }
  }
  if (source == Source::kCifar10 && run.data_dir.empty() && run.files.empty()) {
    throw Error(
        Code::kInvalidArgument,
        "--data cifar10 needs --data-dir, the folder of its .bin files");
  }
  if (source != Source::kCifar10 && !run.data_dir.empty()) {
    throw Error(Code::kInvalidArgument,
                "--data-dir is for --data cifar10; give a folder of images as "
                "--data FOLDER");
  }
  run.batch_size = small ? 128 : 32;
  run.epochs = source == Source::kSynthetic ? 1 : small ? 15 : 90;
}

// What an evaluation of the folder is of.
std::string EvaluatedOn(const RunContext& run) {
  if (SourceOf(run) != Source::kFolder || Part(run, "val")) return "test";
  const double kept_back = KeptBack(run);
  const ImageList all = BesideVal(run);
  const std::string whole = IdentityOf(all);
  const auto trained_on = [&](const std::string& pictures) {
    return run.trained_on.find(pictures) != std::string::npos;
  };
  if (!trained_on(whole)) return kept_back > 0 ? "validation" : "test";
  if (!trained_on(whole + "-but-")) return "training";
  if (kept_back > 0 &&
      trained_on(IdentityOf(SplitImages(all, kept_back).training) + "[")) {
    return "validation";
  }
  throw Error(Code::kInvalidArgument,
              "training kept some of these pictures back: give the same "
              "--validation-split to evaluate on those");
}

// Those of --labels are for people alone: folders have names of their own.
std::vector<std::string> ClassNames(const RunContext& run) {
  const std::string& path = run.flag("labels");
  if (!path.empty() && !run.training()) {
    std::istringstream lines(FileSystem::Posix().Read(path).ValueOrThrow());
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);) names.push_back(line);
    return names;
  }
  if (!run.class_names.empty()) return run.class_names;
  switch (SourceOf(run)) {
    case Source::kCifar10:
      return kCifarNames;
    case Source::kFolder:
      return TrainingPictures(run).training.class_names;
    case Source::kSynthetic:
      break;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return Main(
      argc, argv,
      {.name = "resnet50",
       .input = Input,
       .model = Model,
       .optimizer = Train,
       .flags = {{"data",
                  "synthetic, cifar10 (with --data-dir), or a folder with one "
                  "sub-folder per class, or with images and labels.csv; its "
                  "own sub-folders train and val are used where it has them",
                  "synthetic"},
                 {"model",
                  "v1.5 unless the name says v1; resnet20 and resnet56 are "
                  "for CIFAR",
                  "resnet50", ResNetNames()},
                 {"classes", "How many; 0: as the data have", "0"},
                 {"label-smoothing", "Of training (default: 0.1, CIFAR 0)", ""},
                 {"weight-decay",
                  "L2, except of biases and batch norm (default: 5e-5, CIFAR "
                  "5e-4)",
                  ""},
                 {"base-rate",
                  "Highest learning rate per 256 images in a batch (default: "
                  "0.1, CIFAR 0.4)",
                  ""},
                 {"schedule",
                  "How the rate falls after the warm-up",
                  "cosine",
                  {"cosine", "polynomial", "constant"}},
                 {"warm-up-epochs",
                  "Epochs in which the rate rises from 0, at most half of all "
                  "(default: 5, CIFAR 2)",
                  ""},
                 {"ema", "Decay of averages of the variables; 0: none", "0"},
                 {"validation-split",
                  "Part of the pictures of a folder without val to keep back "
                  "and evaluate on, such as 0.1; always the same ones",
                  "0"},
                 {"labels",
                  "File with names of the classes for predictions, one a line",
                  ""}},
       .files = "JPEG or PNG images to classify",
       .class_names = ClassNames,
       .defaults = Defaults,
       .model_name = [](const RunContext& run) { return run.flag("model"); },
       .dataset_name = [](const RunContext& run) { return run.flag("data"); },
       .evaluated_on = EvaluatedOn});
}
