// Times reading what may lie in an object store, in one process that has read
// nothing of it before; bench/remote starts it beside a server.
//
//   remote_bench file PATH              at once, in memory
//   remote_bench stream PATH            from its first byte to its last
//   remote_bench pictures FOLDER        each of its files
//   remote_bench decoded FOLDER         each, decoded
//   remote_bench records FOLDER         each record of its shards
//   remote_bench decode FOLDER TO       writes the pixels of each to a file
//
// The first five print a JSON object with the bytes and, of each epoch, the
// seconds it took. Those of several things go through a pipeline, shuffled, on
// several threads, and with --cache keep what they made in a folder, as
// resnet50's --cache does. One epoch that finds the folder empty fills it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/guarded.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "io/files/file.h"
#include "io/files/file_version.h"
#include "io/images/image.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/kept_examples.h"
#include "io/records/record_files.h"
#include "io/remote/register.h"

namespace sluice {
namespace {

struct Options {
  std::string path, to, cache;
  int threads = 8, epochs = 1;
};

// Bytes read so far.
using Count = std::atomic<int64_t>;

// Things that are read by number.
struct Things {
  int64_t size = 0;
  std::function<std::string(int64_t)> name;
  // Of its content, as resnet50 knows it: of files in a store as they were
  // listed.
  std::function<std::string(int64_t)> version;
  std::function<Tensor(int64_t)> read;
};

FileSystem& Files() {
  return FileSystem::Default();
}

std::string Read(const std::string& path) {
  return Files().Read(path).ValueOrThrow();
}

Tensor BytesOf(std::string_view text) {
  Tensor bytes(DType::kUInt8, {static_cast<int64_t>(text.size())});
  std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

std::vector<std::string> PathsIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& name : Files().List(folder).ValueOrThrow()) {
    paths.push_back(JoinPath(folder, name));
  }
  return paths;
}

Things Pictures(const Options& options, bool decoded) {
  auto paths =
      std::make_shared<std::vector<std::string>>(PathsIn(options.path));
  auto listed = std::make_shared<std::map<std::string, std::string>>();
  if (auto versions = Files().Versions(options.path); versions.ok()) {
    for (auto& [name, version] : *versions) {
      listed->emplace(JoinPath(options.path, name), std::move(version));
    }
  }
  return {
      .size = static_cast<int64_t>(paths->size()),
      .name = [paths](int64_t i) { return (*paths)[i]; },
      .version =
          [paths, listed](int64_t i) {
            const auto found = listed->find((*paths)[i]);
            return found != listed->end()
                       ? found->second
                       : FileVersion((*paths)[i]).ValueOrThrow();
          },
      .read =
          [paths, decoded](int64_t i) {
            const std::string bytes = Read((*paths)[i]);
            return decoded ? DecodeImage(bytes, (*paths)[i]).ValueOrThrow()
                           : BytesOf(bytes);
          },
  };
}

Things Records(const Options& options) {
  const std::vector<std::string> shards = FindShards(options.path, "train");
  const auto files = RecordFiles::Open(shards, options.threads).ValueOrThrow();
  std::string version;
  for (const std::string& shard : shards) {
    version += FileVersion(shard).ValueOrThrow() + "\n";
  }
  return {
      .size = files->size(),
      .name = [](int64_t i) { return fmt::format("record {}", i); },
      .version = [version](int64_t) { return version; },
      .read =
          [files](int64_t i) { return BytesOf(files->Read(i).ValueOrThrow()); },
  };
}

Dataset Pipeline(const Things& things, const Options& options, Count* bytes) {
  std::shared_ptr<KeptExamples> kept;
  if (!options.cache.empty()) {
    kept = std::make_shared<KeptExamples>(
        CacheOptions{.max_bytes = uint64_t{20} << 30,
                     .folder = options.cache,
                     .key = "remote_bench"});
  }
  const auto get = [things, kept, bytes](Example& example) {
    const int64_t i = example["record"].IntAt(0);
    if (kept == nullptr) {
      example = {{"bytes", things.read(i)}};
    } else {
      const std::string name = things.name(i), version = things.version(i);
      if (auto found = kept->Find(name, version)) {
        example = *std::move(found);
      } else {
        example = {{"bytes", things.read(i)}};
        kept->Add(name, version, example);
      }
    }
    *bytes += example["bytes"].bytes();
  };
  return datasets::RecordNumbers(things.size, options.path)
      .Shuffle(things.size, 1)
      .Map(get, {.threads = options.threads, .kept = kept});
}

void ReadAll(const std::string& path, Count* bytes) {
  *bytes += static_cast<int64_t>(Read(path).size());
}

// As a reader of records does.
void Stream(const std::string& path, Count* bytes) {
  const auto file = Files().OpenRead(path).ValueOrThrow();
  std::string piece(size_t{1} << 20, '\0');
  for (uint64_t at = 0; at < file->size(); at += piece.size()) {
    *bytes += static_cast<int64_t>(
        file->ReadAt(at, piece.data(), piece.size()).ValueOrThrow());
  }
}

void Time(int epochs, const std::function<void(Count*)>& epoch) {
  std::vector<double> seconds;
  Count bytes = 0;
  for (int i = 0; i < epochs; ++i) {
    bytes = 0;
    const auto begin = std::chrono::steady_clock::now();
    epoch(&bytes);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    seconds.push_back(took.count());
  }
  const nlohmann::json said = {{"bytes", bytes.load()}, {"seconds", seconds}};
  std::cout << said.dump() << "\n";
}

void TimeThings(const Things& things, const Options& options) {
  Count bytes = 0;
  const Dataset dataset = Pipeline(things, options, &bytes);
  Time(options.epochs, [&](Count* count) {
    bytes = 0;
    Iterator examples = dataset.MakeIterator();
    Example example;
    while (examples.Next(&example).ValueOrThrow()) {
    }
    *count = bytes.load();
  });
}

void Decode(const Options& options) {
  ThrowIfError(Files().MakeDirectories(options.to));
  const Things pictures = Pictures(options, true);
  for (int64_t i = 0; i < pictures.size; ++i) {
    const Tensor pixels = pictures.read(i);
    ThrowIfError(Files().WriteAtomically(
        JoinPath(options.to, fmt::format("{}", i)),
        std::string_view(static_cast<const char*>(pixels.raw()),
                         pixels.bytes())));
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Times reading what may lie in an object store");
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* what,
                       const std::function<void()>& run) {
    CLI::App& command = *app.add_subcommand(name, what);
    command.add_option("path", options.path)->required();
    command.add_option("--epochs", options.epochs)->check(CLI::Range(1, 1000));
    command.add_option("--threads", options.threads)->check(CLI::Range(1, 256));
    command.callback(run);
    return &command;
  };
  const auto add_things = [&](const char* name, const char* what,
                              const std::function<Things()>& things) {
    add(name, what, [&options, things] {
      TimeThings(things(), options);
    })->add_option("--cache", options.cache, "A folder of this machine");
  };
  RegisterRemoteFiles();
  add("file", "A whole file", [&] {
    Time(options.epochs, [&](Count* bytes) { ReadAll(options.path, bytes); });
  });
  add("stream", "A file in order", [&] {
    Time(options.epochs, [&](Count* bytes) { Stream(options.path, bytes); });
  });
  add_things("pictures", "Files", [&] { return Pictures(options, false); });
  add_things("decoded", "Pictures", [&] { return Pictures(options, true); });
  add_things("records", "Shards", [&] { return Records(options); });
  add("decode", "Write pixels", [&] { Decode(options); })
      ->add_option("to", options.to)
      ->required();
  CLI11_PARSE(app, argc, argv);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  return sluice::bench::Guarded("remote_bench", sluice::Main, argc, argv);
}
