// Times a whole input pipeline over a folder of records, as resnet50 has it in
// training: shuffled, read, decoded, a random part resized and flipped,
// standardised, batched, ahead of who takes the batches. That one does nothing.
//
//   sluice data make ../shared/data/imagenet-samples /tmp/records
//   pipeline_bench /tmp/records --threads 2
//   bench/peers/input_pipeline.py /tmp/records --threads 2
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

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

int Main(int argc, char** argv) {
  std::string folder;
  int threads = 2, rounds = 9;
  int64_t batch = 32;
  CLI::App app("Times an input pipeline over records");
  app.option_defaults()->always_capture_default();
  app.add_option("folder", folder, "With a part \"train\"")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
  app.add_option("--batch-size", batch)->check(CLI::Range(1, 4096));
  app.add_option("--rounds", rounds, "Over all records")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  const ImageRecords records = OpenImageRecords(folder, "train");
  const Dataset dataset = Pipeline(records, threads, batch);
  Iterator batches = dataset.MakeIterator();
  Example example;
  std::vector<double> rates;
  // The first round is to warm up.
  for (int round = 0; round <= rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    int64_t images = 0;
    while (images < records.files->size()) {
      batches.Next(&example).ValueOrThrow();
      images += example["label"].elements();
    }
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - begin;
    if (round > 0)
      rates.push_back(static_cast<double>(images) / seconds.count());
  }
  std::sort(rates.begin(), rates.end());
  std::cout << fmt::format("sluice      {:9.1f} images/s ({:.1f} to {:.1f})\n",
                           rates[rates.size() / 2], rates.front(),
                           rates.back());
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::Main(argc, argv);
  } catch (const sluice::Error& error) {
    std::cerr << "pipeline_bench: " << error.what() << std::endl;
    return 1;
  }
}
