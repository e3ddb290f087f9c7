// resnet50: trains and runs residual networks on photographs.
//
//   resnet50 train --data cifar10 --data-dir FOLDER --model resnet20
//   resnet50 predict --weights FILE.safetensors IMAGE...
//   resnet50 bench --batch-size 16
#include "models/zoo/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "apps/resnet50/picture_cache.h"
#include "apps/resnet50/pictures.h"
#include "apps/resnet50/sizing.h"
#include "apps/shards/label_offset.h"
#include "apps/shards/note_once.h"
#include "engine/ceil_div.h"
#include "graph/builder.h"
#include "io/images/image.h"
#include "io/images/mix.h"
#include "models/cli/main.h"
#include "models/nn/losses.h"
#include "models/nn/metrics.h"
#include "models/nn/mixed_images.h"

namespace {

using namespace sluice;            // NOLINT: a program
using namespace sluice::resnet50;  // NOLINT: its own

// How the batches of a training are mixed, as --augment says.
std::vector<BatchMix> MixesOf(const RunContext& run) {
  return AugmentationOf(Small(run), run).batch();
}

// All crops of a picture are one example: "crops" [10,side,side,3], beside
// "image", their middle one, which reports show.
void NameCrops(Example& example) {
  Tensor crops = example["image"];
  const Shape& shape = crops.shape();
  const Tensor middle = crops.Rows(kTenCropMiddle, kTenCropMiddle + 1);
  example.Set("image", middle.Reshaped({shape[1], shape[2], shape[3]}));
  example.Set("crops", std::move(crops));
}

Dataset Input(const RunContext& run) {
  const Colours& colours = ColoursOf(Small(run));
  Dataset examples = Examples(run);
  if (TenCrop(run)) {
    examples = examples.Map(NameCrops).Map(
        Standardize("crops", colours.mean, colours.deviation));
  }
  Dataset batches =
      examples.Map(Standardize("image", colours.mean, colours.deviation))
          .Batch(run.batch_size);
  if (auto ways = MixesOf(run); !ways.empty()) {
    const int64_t side = Small(run) ? kCifarSide : kCrop;
    const auto draw = [ways = std::move(ways), side](Example& batch,
                                                     uint64_t key) {
      DrawMix(ways, side, side, batch, key);
    };
    batches = batches.MapRandom(run.seed, draw,
                                {.name = "mix", .untouched = {"image"}});
  }
  return batches.Prefetch(2);
}

// --- Model -------------------------------------------------------------------

Output Images(const Features& in, const RunContext& run) {
  const Output images = in["image"];
  if (MixesOf(run).empty()) return images;
  return MixImages(images, {.with = in["mixed_with"],
                            .own = in["mixed_own"],
                            .other = in["mixed_other"],
                            .rows = in["mixed_rows"],
                            .columns = in["mixed_columns"]});
}

// Of a mixture that of its larger part, by which training accuracies go.
Output MainLabel(const Features& in, const RunContext& run) {
  if (MixesOf(run).empty()) return in["label"];
  return Select(Greater(in["mixed_share"], 0.5), in["mixed_label"],
                in["label"]);
}

// Of the logits, or of a classifier that is cut.
template <typename Classes>
Output Loss(const Classes& classes, const Features& in, const RunContext& run) {
  if (!run.training()) {
    return losses::SparseSoftmaxCrossEntropy(classes, in["label"]);
  }
  const CrossEntropyOptions options = {
      .label_smoothing = FlagNumber(run, "label-smoothing", 0, 1)};
  const std::vector<double> weights = ClassWeights(run);
  if (MixesOf(run).empty()) {
    return losses::SparseSoftmaxCrossEntropy(classes, in["label"], options,
                                             weights);
  }
  return losses::MixedSoftmaxCrossEntropy(classes,
                                          {.label = in["label"],
                                           .other = in["mixed_label"],
                                           .share = in["mixed_share"]},
                                          options, weights);
}

ResNetOptions OptionsOf(const RunContext& run) {
  return {.classes = Classes(run),
          .training = run.training(),
          .synchronized = run.sync_batch_norm};
}

// Of ten crops, the logarithms of their mean probabilities, whose softmax these
// are.
Output Logits(Scope& scope, const Features& in, const RunContext& run) {
  const ResNetOptions options = OptionsOf(run);
  const std::string& model = run.flag("model");
  if (!TenCrop(run)) return ResNet(scope, model, Images(in, run), options);
  const Output crops = in["crops"];
  const Shape& shape = crops.shape();
  const Output logits =
      ResNet(scope, model, Reshape(crops, {-1, shape[2], shape[3], shape[4]}),
             options);
  const Output probabilities =
      Mean(Reshape(Softmax(logits), {-1, shape[1], options.classes}), {1});
  // None becomes infinite.
  return Log(Maximum(probabilities, std::numeric_limits<float>::min()));
}

// With the classes cut over the workers.
ModelSpec CutModel(Scope& scope, const Features& in, const RunContext& run) {
  ResNetOptions options = OptionsOf(run);
  options.workers = run.size;
  options.share = CeilDiv(run.batch_size, run.size);
  const layers::Classifier classifier =
      ResNetClassifier(scope, run.flag("model"), Images(in, run), options);
  const Output label = MainLabel(in, run);
  ModelSpec spec = {.loss = Loss(classifier, in, run),
                    .metrics = {{"accuracy", classifier.Accuracy(label)}}};
  if (!Small(run)) {
    spec.metrics.emplace_back("top_5_accuracy",
                              classifier.TopKAccuracy(label, 5));
  }
  return spec;
}

ModelSpec Model(Scope& scope, const Features& in, const RunContext& run) {
  const bool cut = run.flag("shard-classes") == "true";
  if (cut && run.elastic) {
    throw Error(Code::kInvalidArgument,
                "--shard-classes: the classifier is cut over the workers, "
                "which is not for variables on parameter servers or elastic "
                "jobs");
  }
  if (cut && run.size > 1) return CutModel(scope, in, run);
  const Output logits = Logits(scope, in, run);
  const Output label = MainLabel(in, run);
  ModelSpec spec = {.loss = Loss(logits, in, run),
                    .metrics = {{"accuracy", Accuracy(logits, label)}},
                    .exports = {{"probabilities", Softmax(logits)},
                                {"class", ArgMax(logits)}}};
  if (!Small(run)) {
    spec.metrics.emplace_back("top_5_accuracy", TopKAccuracy(logits, label, 5));
  }
  return spec;
}

// --- Training ----------------------------------------------------------------

// Of a training, and of its warm-up, where none are given.
struct Epochs {
  double all, warm_up;
};
Epochs DefaultEpochs(const RunContext& run) {
  return Small(run) ? Epochs{15, 2} : Epochs{90, 5};
}

// Those that were given; nullopt: none were.
std::optional<double> WarmUpEpochs(const RunContext& run) {
  if (run.flag("warm-up-epochs").empty()) return std::nullopt;
  return FlagNumber(run, "warm-up-epochs", 0, 1e6);
}

// In how many of all steps the rate rises.
int64_t WarmUpSteps(const RunContext& run, double epochs, int64_t steps) {
  double per_epoch = run.steps_per_epoch;
  if (!run.knows_epochs() && epochs > 0) {
    // The default: the same part of the training as of one by default.
    const double all = DefaultEpochs(run).all;
    per_epoch = static_cast<double>(steps) / all;
    shards::NoteOnce(fmt::format(
        "how many pictures an epoch has is not known: the rate rises over {} "
        "of {} steps, as over {} of {} epochs; --warm-up-epochs 0: over none",
        static_cast<int64_t>(epochs * per_epoch), steps, epochs, all));
  }
  // At most half of the steps: the rest must see a high rate too.
  return std::min(static_cast<int64_t>(epochs * per_epoch), steps / 2);
}

LearningRate Rate(const RunContext& run) {
  const double rate = FlagNumber(run, "base-rate", 0, 1e6) *
                      static_cast<double>(run.batch_size) / 256;
  const std::optional<double> given = WarmUpEpochs(run);
  if (given.value_or(0) > 0 && !run.knows_epochs()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("--warm-up-epochs {}: how many pictures an epoch "
                            "has is not known; give 0, or have train.json, "
                            "the manifest that `sluice data make` writes, "
                            "beside the shards",
                            *given));
  }
  const double warm_up_epochs = given.value_or(DefaultEpochs(run).warm_up);
  const std::string& schedule = run.flag("schedule");
  // How many steps there are need not be known.
  if (schedule == "constant" && warm_up_epochs == 0) return rate;
  const int64_t steps = std::max<int64_t>(run.total_steps(), 1);
  const int64_t warm_up = WarmUpSteps(run, warm_up_epochs, steps);
  const LearningRate falling =
      schedule == "cosine"       ? schedules::Cosine(rate, steps)
      : schedule == "polynomial" ? schedules::Polynomial(rate, steps, 0, 2)
                                 : LearningRate(rate);
  return warm_up > 0 ? schedules::WarmUp(warm_up, falling) : falling;
}

Optimizer Train(const RunContext& run) {
  // A decay of 0, too: it takes the place of another optimizer's own.
  const Optimizer optimizer =
      optimizers::Nesterov(Rate(run), 0.9)
          .With(gradients::WeightDecay(FlagNumber(run, "weight-decay", 0, 1)));
  const double average = FlagNumber(run, "ema", 0, 1);
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
                                 {"weight-decay", "5e-4", "5e-5"},
                                 {"label-smoothing", "0", "0.1"}};

// Whether there may be pictures for --validation-split to keep back: of a
// folder that has none to validate on. Other ones that are evaluated are taken
// whole.
bool CanKeepBack(const RunContext& run) {
  return run.training() && SourceOf(run) == Source::kFolder &&
         !Part(run, "val");
}

// Whether pictures are decoded: those of a folder, of records or tar shards,
// and those that are named.
bool AreEncoded(const RunContext& run) {
  const Source source = SourceOf(run);
  return source == Source::kFolder || source == Source::kRecords ||
         !run.files.empty();
}

bool CanAugment(const RunContext& run) {
  return SourceOf(run) != Source::kSynthetic;
}

void Defaults(RunContext& run) {
  const bool small = Small(run);
  const Source source = SourceOf(run);
  for (const Default& value : kDefaults) {
    std::string& flag = run.flags[value.flag];
    if (flag.empty()) flag = small ? value.small : value.large;
  }
  for (const char* flag : {"weight-decay", "label-smoothing", "ema"}) {
    FlagNumber(run, flag, 0, 1);
  }
  for (const char* flag : {"base-rate", "classes"}) {
    FlagNumber(run, flag, 0, 1e6);
  }
  WarmUpEpochs(run);
  if (FlagNumber(run, "ema", 0, 1) == 1 ||
      FlagNumber(run, "label-smoothing", 0, 1) == 1) {
    throw Error(Code::kInvalidArgument,
                "--ema and --label-smoothing must be less than 1");
  }
  AugmentationOf(small, run);
  if (!CanAugment(run) && !run.flag("augment").empty()) {
    throw Error(Code::kInvalidArgument,
                "--augment changes pictures, not the noise of --data "
                "synthetic");
  }
  shards::CheckLabelOffset(run, source == Source::kRecords, "--data");
  const bool encoded = AreEncoded(run);
  for (const char* flag : {"exif", "ten-crop"}) {
    if (encoded || run.flag(flag) != "true") continue;
    throw Error(Code::kInvalidArgument,
                fmt::format("--{} is for --data with a folder", flag));
  }
  if (!encoded && !run.flag("cache").empty()) {
    throw Error(Code::kInvalidArgument,
                "--cache is for --data with a folder; other pictures are in "
                "memory anyway");
  }
  PictureCache::Check(run);
  if (KeptBack(run) > 0) {
    if (source != Source::kFolder) {
      throw Error(Code::kInvalidArgument,
                  "--validation-split is for --data with a folder of pictures");
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
  if (run.flag("ten-crop") == "true") {  // of ten pictures each
    run.batch_size = (run.batch_size + 9) / 10;
  }
  run.epochs = source == Source::kSynthetic ? 1 : DefaultEpochs(run).all;
}

}  // namespace

int main(int argc, char** argv) {
  return Main(
      argc, argv,
      {.name = "resnet50",
       .input = Input,
       .model = Model,
       .optimizer = Train,
       .rate_by_batch_size = true,
       .flags = {{"data",
                  "synthetic, cifar10 (with --data-dir), or a folder with one "
                  "sub-folder per class, or with images and labels.csv, whose "
                  "own sub-folders train and val are used where it has them; "
                  "or one of records, train-NNNNN-of-MMMMM and validation-..., "
                  "or of WebDataset's tar shards, train-NNNNNN.tar; a "
                  "pattern, such as 'FOLDER/*-0000[0-4]-of-*', reads those "
                  "shards alone",
                  "synthetic",
                  {"synthetic", "cifar10"},
                  Flag::Kind::kData},
                 {.name = "model",
                  .help = "v1.5 unless the name says v1; resnet20 and resnet56 "
                          "are for CIFAR",
                  .value = "resnet50",
                  .choices = ResNetNames(),
                  .of_reading = true},
                 {"classes", "How many; 0: as the data have", "0"},
                 {"shard-classes",
                  "Of several processes: each has a part of the classifier, "
                  "its share of the classes, in place of all of it; "
                  "checkpoints are as without",
                  "false",
                  {},
                  Flag::Kind::kSwitch},
                 {"label-offset",
                  "The label of the first class in records or tar shards: a "
                  "whole number, or auto: 1 if the number of classes is a "
                  "label, 0 if 0 is one, else as in the training or 0; up to "
                  "10,000 are looked at",
                  "auto",
                  {},
                  Flag::Kind::kText,
                  /*of_data=*/true},
                 {"allow-missing-shards",
                  "Go on where shards of --data are missing or hold "
                  "nothing, which is an error otherwise, unless that is a "
                  "pattern that leaves them out",
                  "",
                  {},
                  Flag::Kind::kSwitch,
                  /*of_data=*/true},
                 {.name = "exif",
                  .help = "Turn pictures as the orientation in their Exif data "
                          "says; without, it is passed over, as PIL and "
                          "torchvision do",
                  .value = "false",
                  .kind = Flag::Kind::kSwitch,
                  .fits_data = AreEncoded,
                  .of_reading = true},
                 {"ten-crop",
                  "Of eval: average the probabilities of ten crops of each "
                  "picture, the corners and the middle, also flipped; batches "
                  "then hold a tenth, unless --batch-size says otherwise",
                  "",
                  {},
                  Flag::Kind::kSwitch},
                 {"cache",
                  "Where pictures of --data are kept once they have been read, "
                  "for later epochs: memory, of each process, or a folder on a "
                  "local disk, for all processes of this host, also later "
                  "ones; what has changed since is read anew (default: none)",
                  "",
                  {"memory"},
                  Flag::Kind::kPath,
                  /*of_data=*/false,
                  AreEncoded},
                 {"cache-stage",
                  "What --cache keeps: the bytes of their files, or the "
                  "decoded image before anything random, which takes several "
                  "times the room and saves decoding",
                  "bytes",
                  {"bytes", "image"}},
                 {"cache-limit",
                  "The most that --cache takes, such as 500M, 20G or 1T "
                  "(default: 20G in a folder, 4G in memory)",
                  "",
                  {},
                  Flag::Kind::kText,
                  /*of_data=*/false,
                  AreEncoded},
                 {"label-smoothing", "Of training (default: 0.1, CIFAR 0)", ""},
                 {"augment",
                  "Random changes of training pictures beyond cropping and "
                  "flipping, such as 'randaugment(2,9),erasing(0.25)' or "
                  "'jitter(0.4,0.4,0.4,0.1)'; crop(0.35,1), pad-crop(4) and "
                  "flip(0.5) before these in place of the usual cut, a crop "
                  "of 0.08 to 1 of the area (CIFAR pad-crop(4)), flipped half "
                  "of the time; mixup(0.2) and cutmix(1) mix "
                  "those of a batch (of several processes each those of its "
                  "share), and training accuracy then goes by the larger part",
                  "",
                  {},
                  Flag::Kind::kText,
                  /*of_data=*/false,
                  CanAugment},
                 {"class-weights",
                  "Of the loss in training: CLASS=WEIGHT, several with commas "
                  "between them, or balanced, by how many pictures each has; "
                  "evaluations are not weighted (default: all 1)",
                  ""},
                 {"weight-decay",
                  "L2, except of biases and batch norm (default: 5e-5, CIFAR "
                  "5e-4)",
                  ""},
                 {.name = "base-rate",
                  .help =
                      "Highest learning rate per 256 images in a batch; beside "
                      "--optimizer of that one (default: 0.1, CIFAR 0.4)",
                  .rate = Flag::Rate::kHeight},
                 {.name = "schedule",
                  .help = "How the rate falls after the warm-up",
                  .value = "cosine",
                  .choices = {"cosine", "polynomial", "constant"},
                  .rate = Flag::Rate::kCourse},
                 {.name = "warm-up-epochs",
                  .help = "Epochs in which the rate rises from 0, at most half "
                          "of all (default: 5, CIFAR 2)",
                  .rate = Flag::Rate::kCourse},
                 {"ema", "Decay of averages of the variables; 0: none", "0"},
                 {.name = "validation-split",
                  .help = "Part of the pictures of a folder without val to "
                          "keep back and evaluate on, such as 0.1; always the "
                          "same ones",
                  .value = "0",
                  .fits_data = CanKeepBack},
                 {"labels",
                  "File with names of the classes for predictions, one a line",
                  "",
                  {},
                  Flag::Kind::kPath}},
       .files = "JPEG or PNG images to classify",
       .class_names = ClassNames,
       .example_names = ExampleNames,
       .defaults = Defaults,
       .model_name = [](const RunContext& run) { return run.flag("model"); },
       .dataset_name = [](const RunContext& run) { return run.flag("data"); },
       .evaluated_on = EvaluatedOn});
}
