// One worker of a shuffled epoch over small records, which may be killed at any
// time and goes on where it was: bench/epoch runs several and counts.
//
//   epoch_bench make FOLDER --records 1280000 --shards 128
//   epoch_bench read FOLDER --worker 0 --workers 3 --state FILE
//
// A record is its number, 8 bytes little-endian. `read` appends the numbers it
// has seen to FILE.seen and then, atomically, its position to FILE; what was
// appended behind the last position is cut off at the next start.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/guarded.h"
#include "engine/status.h"
#include "io/files/file.h"
#include "io/files/record.h"
#include "io/pipeline/dataset.h"
#include "io/records/record_files.h"
#include "io/remote/register.h"

namespace sluice {
namespace {

constexpr int kBatch = 300;
constexpr int kBatchesBetweenStates = 20;

struct Options {
  std::string folder, state;
  int64_t records = 1'280'000, shards = 128;
  int worker = 0, workers = 1, threads = 1;
};

void Make(const Options& options) {
  FileSystem& files = FileSystem::Default();
  ThrowIfError(files.MakeDirectories(options.folder));
  int64_t record = 0;
  for (int64_t shard = 0; shard < options.shards; ++shard) {
    std::string bytes;
    const int64_t end = options.records * (shard + 1) / options.shards;
    for (; record < end; ++record) {
      char number[8];
      std::memcpy(number, &record, 8);
      AppendRecord({number, 8}, &bytes);
    }
    ThrowIfError(files.WriteAtomically(
        JoinPath(options.folder,
                 fmt::format("train-{:05}-of-{:05}", shard, options.shards)),
        bytes));
  }
}

Dataset Numbers(const Options& options) {
  const std::shared_ptr<const RecordFiles> files =
      RecordFiles::Open(FindShards(options.folder, "train"), options.threads)
          .ValueOrThrow();
  const Dataset numbers = datasets::RecordNumbers(*files);
  return numbers.Shuffle(numbers.cardinality(), 1)
      .Map(
          [files](Example& example) {
            const std::string bytes =
                files->Read(example["record"].IntAt(0)).ValueOrThrow();
            int64_t number = 0;
            std::memcpy(&number, bytes.data(), 8);
            example = {{"number", Tensor::Scalar(number)}};
          },
          {.threads = options.threads})
      .Batch(kBatch)
      .Share(options.worker, options.workers);
}

void Read(const Options& options) {
  FileSystem& files = FileSystem::Default();
  const auto begin = std::chrono::steady_clock::now();
  const auto milliseconds = [&] {
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - begin;
    return time.count();
  };
  Iterator batches = Numbers(options).MakeIterator();
  const std::string seen_path = options.state + ".seen";
  int64_t seen_bytes = 0;
  if (*files.Exists(options.state)) {
    const std::string state = files.Read(options.state).ValueOrThrow();
    const size_t space = state.find(' ');
    seen_bytes = std::stoll(state.substr(0, space));
    ThrowIfError(batches.Restore(state.substr(space + 1)));
  }
  // Also where it was killed before there was any position.
  if (*files.Exists(seen_path) &&
      truncate(seen_path.c_str(), seen_bytes) != 0) {
    ThrowIfError(FileError(errno, "cut", seen_path));
  }
  auto seen = files.OpenAppend(seen_path).ValueOrThrow();
  Example batch;
  bool first = true;
  for (int64_t count = 1; batches.Next(&batch).ValueOrThrow(); ++count) {
    if (first)
      std::cout << fmt::format("first batch {:.0f} ms\n", milliseconds());
    first = false;
    const Tensor& tensor = batch["number"];
    const std::span numbers(tensor.data<int64_t>(),
                            static_cast<size_t>(tensor.elements()));
    ThrowIfError(seen->Append(
        {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()}));
    seen_bytes += static_cast<int64_t>(numbers.size_bytes());
    if (count % kBatchesBetweenStates != 0) continue;
    ThrowIfError(files.WriteAtomically(
        options.state,
        fmt::format("{} {}", seen_bytes, batches.SavePosition())));
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      std::cout << fmt::format("peak {:.0f} MB\n",
                               std::stod(line.substr(6)) / 1000);
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("A shuffled epoch over small records, killed and resumed");
  app.require_subcommand(1);
  CLI::App& make = *app.add_subcommand("make", "Write the records");
  make.add_option("folder", options.folder)->required();
  make.add_option("--records", options.records)->check(CLI::PositiveNumber);
  make.add_option("--shards", options.shards)->check(CLI::PositiveNumber);
  CLI::App& read = *app.add_subcommand("read", "See each of a worker's once");
  read.add_option("folder", options.folder)->required();
  read.add_option("--state", options.state)->required();
  read.add_option("--worker", options.worker)->check(CLI::NonNegativeNumber);
  read.add_option("--workers", options.workers)->check(CLI::PositiveNumber);
  read.add_option("--threads", options.threads)->check(CLI::Range(1, 256));
  CLI11_PARSE(app, argc, argv);
  RegisterRemoteFiles();
  if (make) {
    Make(options);
  } else {
    Read(options);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::bench::Guarded("epoch_bench", sluice::Main, argc, argv);
}
