// Times a whole input pipeline over a folder of records, as resnet50 has it in
// training: shuffled, read, decoded, a random part resized and flipped,
// standardised, batched, ahead of who takes the batches. That one does nothing.
//
//   sluice data make ../shared/data/imagenet-samples /tmp/records
//   pipeline_bench /tmp/records --threads 2
//   bench/peers/input_pipeline.py /tmp/records --threads 2
//
// With --step-ms the one that takes the batches computes for so long for each
// image, on a thread of its own: how much of the slower of the two is left when
// both run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bench/guarded.h"
#include "engine/status.h"
#include "io/images/image.h"
#include "io/pipeline/dataset.h"
#include "io/records/image_records.h"

namespace sluice {
namespace {

constexpr int64_t kSide = 224;

Dataset Pipeline(const ImageRecords& records, int threads, int64_t batch) {
  const Dataset numbers = datasets::RecordNumbers(*records.files);
  const auto picture = [files = records.files](Example& example, uint64_t key) {
    const int64_t number = example["record"].IntAt(0);
    const std::string bytes = files->Read(number).ValueOrThrow();
    const ImageRecord record = ParseImageRecord(bytes).ValueOrThrow();
    example = {{"image",
                DecodeRandomResizedCrop(record.encoded, "a record", kSide, key)
                    .ValueOrThrow()},
               {"label", Tensor::Scalar(record.label)}};
  };
  return numbers.Shuffle(numbers.cardinality(), 1)
      .Repeat()
      .MapRandom(1, picture, {.threads = threads})
      .Map(Standardize("image", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}))
      .Batch(batch)
      .Prefetch(2);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Seconds = std::chrono::duration<double>;

// Keeps a core busy, as a step of training does.
void Compute(Seconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// Images per second over at least `images` of them; each takes `step` more.
double Rate(Iterator& batches, int64_t images, Seconds step) {
  const auto begin = std::chrono::steady_clock::now();
  Example example;
  int64_t seen = 0;
  while (seen < images) {
    batches.Next(&example).ValueOrThrow();
    const int64_t batch = example["label"].elements();
    if (step.count() > 0) Compute(step * batch);
    seen += batch;
  }
  const Seconds seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(seen) / seconds.count();
}

// The most memory that the process has held, in MB (Linux: VmHWM).
double PeakMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1000;
  }
  return 0;
}

int Main(int argc, char** argv) {
  std::string folder;
  int threads = 2, rounds = 9;
  int64_t batch = 32;
  double step_ms = 0;
  CLI::App app("Times an input pipeline over records");
  app.option_defaults()->always_capture_default();
  app.add_option("folder", folder, "With a part \"train\"")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
  app.add_option("--batch-size", batch)->check(CLI::Range(1, 4096));
  app.add_option("--rounds", rounds, "Over all records")
      ->check(CLI::Range(1, 1000));
  app.add_option("--step-ms", step_ms, "A stand-in step, for each image")
      ->check(CLI::Range(0.0, 1000.0));
  CLI11_PARSE(app, argc, argv);
  const ImageRecords records = OpenImageRecords(folder, "train");
  const int64_t images = records.files->size();
  Iterator batches = Pipeline(records, threads, batch).MakeIterator();
  const Seconds step(step_ms / 1000);
  Rate(batches, images, Seconds(0));  // to warm up
  std::vector<double> alone, together;
  for (int round = 0; round < rounds; ++round) {
    alone.push_back(Rate(batches, images, Seconds(0)));
    if (step_ms > 0) together.push_back(Rate(batches, images, step));
  }
  std::cout << fmt::format(
      "sluice      {:9.1f} images/s ({:.1f} to {:.1f}); peak {:.0f} MB\n",
      Median(alone), *std::min_element(alone.begin(), alone.end()),
      *std::max_element(alone.begin(), alone.end()), PeakMegabytes());
  if (step_ms > 0) {
    const double slower = std::min(Median(alone), 1 / step.count());
    std::cout << fmt::format(
        "with a step {:9.1f} images/s: {:.3f} of the slower of the two\n",
        Median(together), Median(together) / slower);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::bench::Guarded("pipeline_bench", sluice::Main, argc, argv);
}
