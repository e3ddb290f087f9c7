// Checkpoints in an object store, read beside a training that saves.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "io/checkpoints/checkpoint.h"
#include "io/checkpoints/safetensors.h"
#include "tests/support/answering_client.h"
#include "tests/support/error_text.h"
#include "tests/support/remote_files.h"

namespace sluice {
namespace {

using testing::Contains;

// Of many blocks, and of which save it is, so that no two are the same.
Checkpoint Make(int64_t step, double save, std::optional<double> metric) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.metric = metric;
  checkpoint.tensors = {
      {"weights", Tensor::Full(DType::kFloat32, {40, 50}, save)}};
  return checkpoint;
}

// A training that saves in a store, and who reads there through a client of
// its own: once, in front of the first part behind the head of the file of step
// `awaited`, `meanwhile` happens.
struct Training {
  testing::RemoteFiles bucket;
  CheckpointManager saves;
  int64_t awaited = 1;
  std::function<void()> meanwhile;
  std::atomic<bool> happened = false;
  testing::AnsweringClient client;
  remote::S3Files files{client, bucket.store.environment(), bucket.clock,
                        testing::SmallSizes()};
  CheckpointManager reads =
      CheckpointManager::ForReading("s3://b/run", {.files = &files});

  explicit Training(std::function<void(Training&)> then, int keep = 1)
      : saves(CheckpointManager::Open("s3://b/run",
                                      {.keep = keep, .files = &bucket.files})
                  .ValueOrThrow()),
        meanwhile([this, then = std::move(then)] { then(*this); }) {
    client.answer = [this](const remote::HttpRequest& request) {
      const bool part =
          request.url.find(fmt::format("checkpoint-{}.", awaited)) !=
              std::string::npos &&
          std::any_of(
              request.headers.begin(), request.headers.end(),
              [](const auto& header) { return header.first == "if-match"; });
      if (part && !happened.exchange(true)) meanwhile();
      return bucket.client->Send(request);
    };
    Save(1, 1);
  }
  void Save(int64_t step, double save,
            std::optional<double> metric = std::nullopt) {
    CHECK(saves.Save(Make(step, save, metric)).ok());
  }
};

double SaveOf(const CheckpointManager::Restored& restored) {
  REQUIRE(restored.checkpoint.tensors.size() == 1);
  return restored.checkpoint.tensors[0].tensor.At(0);
}

TEST_CASE("a checkpoint that is replaced while it is read is read anew") {
  const auto replace = [](Training& training) { training.Save(1, 2); };
  {
    Training training(replace);
    const auto read = training.reads.RestoreStep(1);
    REQUIRE_MESSAGE(read.ok(), read.status().message());
    CHECK(training.happened.load());
    CHECK(SaveOf(*read) == 2);
  }
  Training training(replace);
  const auto read = training.reads.RestoreNewest();
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  REQUIRE(read->has_value());
  CHECK(training.happened.load());
  CHECK(SaveOf(**read) == 2);
  CHECK((*read)->warnings.empty());
}

TEST_CASE("of one that is removed while it is read the newer one is read") {
  const auto go_on = [](Training& training) { training.Save(2, 2); };
  {
    Training training(go_on);
    const auto read = training.reads.RestoreNewest();
    REQUIRE_MESSAGE(read.ok(), read.status().message());
    REQUIRE(read->has_value());
    CHECK(training.happened.load());
    CHECK((*read)->checkpoint.state.step == 2);
    CHECK(SaveOf(**read) == 2);
  }
  Training training(go_on);
  const Status read = training.reads.RestoreStep(1).status();
  CHECK(read.code() == Code::kNotFound);
  CHECK(Contains(read.message(), "no checkpoint of step 1"));
  CHECK(Contains(read.message(), "only of: 2"));
}

TEST_CASE("the best is judged by what takes its place while it is read") {
  Training training([](Training& self) { self.Save(2, 2, 0.9); }, /*keep=*/2);
  training.Save(1, 1, 0.5);
  training.Save(2, 1, 0.9);
  training.awaited = 2;
  const auto read = training.reads.RestoreBest();
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  REQUIRE(read->has_value());
  CHECK(training.happened.load());
  CHECK((*read)->checkpoint.state.step == 2);
  CHECK(SaveOf(**read) == 2);
}

TEST_CASE("a header that is replaced or removed while it is read") {
  {
    Training training([](Training& self) { self.Save(1, 2); });
    const std::string path = training.reads.PathOf(1);
    const auto before = ReadSafetensorsHeader(path, training.bucket.files);
    const auto header = training.reads.HeaderOf(1);
    REQUIRE_MESSAGE(header.ok(), header.status().message());
    CHECK(training.happened.load());
    CHECK(header->checksum != before->checksum);
    CHECK(header->checksum ==
          ReadSafetensorsHeader(path, training.bucket.files)->checksum);
  }
  Training training([](Training& self) { self.Save(2, 2); });
  CHECK(training.reads.HeaderOf(1).status().code() == Code::kNotFound);
  CHECK(training.happened.load());
}

TEST_CASE("a store that fails in the middle of one is an error as before") {
  Training training([](Training& self) {
    self.bucket.store.Fail([](const testing::ServedRequest& request, int) {
      const bool part =
          request.method == "GET" && !request.Header("if-match").empty();
      return part ? testing::StoreFault::kForbidden
                  : testing::StoreFault::kNone;
    });
  });
  CHECK(training.reads.RestoreNewest().status().code() == Code::kUnavailable);
  CHECK(training.happened.load());
}

TEST_CASE("a header in a store is read without asking for its size") {
  Training training([](Training&) {});
  training.bucket.store.ResetCounts();
  const auto header =
      ReadSafetensorsHeader(training.reads.PathOf(1), training.files);
  REQUIRE(header.ok());
  CHECK(header->tensors.size() == 1);
  CHECK(training.bucket.store.Count("HEAD") == 0);
}

}  // namespace
}  // namespace sluice
#endif
