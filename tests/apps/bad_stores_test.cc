// Programs on an object store that refuses, has nothing, or is not there: one
// line says what and why, and nothing is done as if a thing were missing that
// may not be seen.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/files/record.h"
#include "io/images/png.h"
#include "io/records/image_records.h"
#include "tests/support/compressed.h"
#include "tests/support/mnist_program.h"
#include "tests/support/resnet50_program.h"
#include "tests/support/same_bits.h"
#include "tests/support/store_program.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

using testing::Contains;
using testing::kMnist;
using testing::KnowsStores;
using testing::MnistData;
using testing::ObjectStore;
using testing::Outcome;
using testing::RunProgram;
using testing::ServedRequest;
using testing::StoreFault;
using testing::StoreSettings;
using testing::TemporaryFolder;
using testing::Upload;
using Strings = std::vector<std::string>;

constexpr const char* kResNet50 = SLUICE_BIN_DIR "/resnet50";
constexpr const char* kTool = SLUICE_BIN_DIR "/sluice";

// What is asked for: "LIST s3://b/pictures/val", "HEAD
// s3://b/records/train.idx".
struct Asked {
  std::string verb, path;

  auto operator<=>(const Asked&) const = default;
  // The same of all that differ in numbers alone, as pictures and shards do.
  std::string Shape() const {
    std::string shape = verb + " ";
    for (const char c : path) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (!digit || shape.back() != '#') shape += digit ? '#' : c;
    }
    return shape;
  }
};

Asked WhatIsAsked(const ServedRequest& request) {
  const auto decoded = [](const std::string& text) {
    return remote::DecodePercent(text).ValueOrThrow();
  };
  const size_t mark = request.target.find('?');
  const std::string path = decoded(request.target.substr(0, mark));
  const size_t prefix = request.target.find("prefix=");
  if (prefix == std::string::npos) return {request.method, "s3:/" + path};
  const std::string rest = request.target.substr(prefix + 7);
  std::string folder = decoded(rest.substr(0, rest.find('&')));
  if (folder.ends_with('/')) folder.pop_back();
  return {"LIST", "s3:/" + path + "/" + folder};
}

// A program's run on the bucket, which `bucket` in its arguments stands for.
struct Program {
  std::string name, path;
  Strings arguments;  // "{}" stands for the bucket
  // Of what it writes, and of its lock, a refusal may come where it is too late
  // for the exit code, or be of what can be done without.
  bool writes = false;
  bool knows_names = false;  // of what it reads, which takes no listing

  Outcome Run(const std::string& bucket = "s3://b") const {
    Strings given;
    for (std::string argument : arguments) {
      const size_t at = argument.find("{}");
      if (at != std::string::npos) argument.replace(at, 2, bucket);
      given.push_back(argument);
    }
    return RunProgram(path, given);
  }
};

// Of the last line, which tells what is wrong.
void CheckFails(const Program& program, const Outcome& outcome,
                const std::string& what, const std::string& why) {
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 1);
  REQUIRE(!outcome.err.empty());
  const std::string last = testing::LastLine(outcome.err);
  CHECK(last.starts_with(program.name + ": "));
  CHECK(Contains(last, what));
  CHECK(Contains(last, why));
  // No result.
  for (const char* result : {"accuracy", "examples/s", "all good"}) {
    CHECK(outcome.out.find(result) == std::string::npos);
  }
}

// A store with something for each program.
class Stored {
 public:
  Stored() {
    const std::string pictures = folder_ / "pictures";
    testing::WriteClasses(pictures + "/train", {"ant", "bee"}, 2);
    testing::WriteClasses(pictures + "/val", {"ant", "bee"}, 1);
    Upload(store, pictures, "pictures");
    // Without the file they were of two classes.
    Upload(store, pictures + "/train", "labelled");
    store.Put("labelled/labels.csv",
              "ant/0.png,0\nant/1.png,1\nbee/0.png,2\nbee/1.png,0\n");
    for (const std::string part : {"train", "val"}) {
      const Outcome made = RunProgram(
          kTool,
          {"data", "make", pictures + "/" + part, folder_ / "records", "--part",
           part == "val" ? "validation" : part, "--shards", "2"});
      REQUIRE_MESSAGE(made.code == 0, made.err);
    }
    Upload(store, folder_ / "records", "records");
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ / "records")) {
      const std::string name = entry.path().filename();
      if (name.ends_with(".idx") || name == "data.lock") continue;
      std::string bytes = testing::TextOf(entry.path());
      if (name.find("-of-") != name.npos) {
        bytes = testing::Compressed(bytes, Compression::kGzip);
      }
      store.Put("compressed/" + name, bytes);
    }
    Upload(store, MnistData().path(), "mnist");
  }

  // Some evaluate what a training left here.
  std::vector<Program> Programs() {
    std::vector<Program> programs;
    for (const std::string data :
         {"pictures", "labelled", "records", "compressed"}) {
      const Strings on = {"--data",       "{}/" + data,
                          "--model",      "resnet20",
                          "--log-dir",    folder_ / data + "-log",
                          "--batch-size", "2",
                          "--threads",    "1"};
      Strings train = {"train", "--steps", "2"}, eval = {"eval"};
      train.insert(train.end(), on.begin(), on.end());
      eval.insert(eval.end(), on.begin(), on.end());
      const Program trains = {"resnet50", kResNet50, train};
      REQUIRE(trains.Run().code == 0);
      // Begins anew, beside that of the evaluation.
      for (std::string& argument : train) {
        if (argument.ends_with("-log")) argument = "";
      }
      std::erase(train, "--log-dir");
      std::erase(train, "");
      programs.push_back({"resnet50", kResNet50, train});
      programs.push_back({"resnet50", kResNet50, eval});
    }
    programs.push_back({"mnist",
                        kMnist,
                        {"train", "--data-dir", "{}/mnist", "--model", "mlp",
                         "--max-steps", "2", "--threads", "1"},
                        false,
                        true});
    programs.push_back(
        {"mnist",
         kMnist,
         {"train", "--data-dir", MnistData().path(), "--model", "mlp",
          "--max-steps", "2", "--threads", "1", "--log-dir", "{}/run"},
         true});
    programs.push_back({"sluice", kTool, {"data", "check", "{}/records"}});
    return programs;
  }

  ObjectStore store;

 private:
  TemporaryFolder folder_;
};

// Of each shape one of the things that a good run asks for.
std::map<std::string, Asked> Asks(ObjectStore& store, const Program& program) {
  std::mutex mutex;
  std::map<std::string, Asked> asks;
  store.Fail([&](const ServedRequest& request, int) {
    const Asked asked = WhatIsAsked(request);
    const std::lock_guard lock(mutex);
    asks.emplace(asked.Shape(), asked);
    return StoreFault::kNone;
  });
  const Outcome good = program.Run();
  store.Fail(nullptr);
  REQUIRE_MESSAGE(good.code == 0, good.err);
  return asks;
}

TEST_CASE("whatever a store refuses, a program ends and says what and why") {
  if (!KnowsStores()) return;
  Stored stored;
  const StoreSettings settings(stored.store);
  for (const Program& program : stored.Programs()) {
    const std::string line =
        fmt::format("{}", fmt::join(program.arguments, " "));
    CAPTURE(line);
    for (const auto& [shape, refused] : Asks(stored.store, program)) {
      const bool reads = refused.verb == "GET" || refused.verb == "LIST";
      if (program.writes && !reads) continue;
      // A size of theirs is of the identity of them all, and may be unknown.
      if (refused.verb == "HEAD" && refused.path.ends_with(".png")) continue;
      CAPTURE(shape);
      stored.store.Fail([&, kind = shape](const ServedRequest& request, int) {
        return WhatIsAsked(request).Shape() == kind ? StoreFault::kForbidden
                                                    : StoreFault::kNone;
      });
      const Outcome outcome = program.Run();
      stored.store.Fail(nullptr);
      if (program.knows_names && refused.verb == "LIST") {
        CHECK_MESSAGE(outcome.code == 0, outcome.err);
        continue;
      }
      // Of several that differ in their numbers it may be any.
      const size_t number = refused.path.find_first_of("0123456789", 5);
      CheckFails(program, outcome, refused.path.substr(0, number),
                 "permission denied");
    }
  }
}

// Settings of a store but for one.
class WithSetting {
 public:
  WithSetting(const char* name, const std::string& value)
      : name_(name), old_(std::getenv(name)) {
    setenv(name, value.c_str(), 1);
  }
  ~WithSetting() { setenv(name_, old_.c_str(), 1); }
  WithSetting(const WithSetting&) = delete;
  WithSetting& operator=(const WithSetting&) = delete;

 private:
  const char* const name_;
  const std::string old_;
};

TEST_CASE("a store that is not there, or knows neither bucket nor key") {
  if (!KnowsStores()) return;
  Stored stored;
  const StoreSettings settings(stored.store);
  constexpr std::time_t kDay = 24 * 60 * 60;
  for (const Program& program : stored.Programs()) {
    const std::string line =
        fmt::format("{}", fmt::join(program.arguments, " "));
    CAPTURE(line);
    CheckFails(program, program.Run("s3://none"), "s3://none",
               "no such bucket");
    {
      const WithSetting wrong("AWS_SECRET_ACCESS_KEY", "another");
      const Outcome outcome = program.Run();
      // The answer to a HEAD has no body, which would say what is wrong.
      CheckFails(program, outcome, "s3://b",
                 outcome.err.find("permission denied") != std::string::npos
                     ? "permission denied"
                     : "the credentials are refused");
    }
    {
      const WithSetting nobody("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1");
      CheckFails(program, program.Run(), "s3://b", "after 4 tries");
    }
    for (const std::time_t ahead : {kDay, -kDay}) {
      stored.store.SetClock(ahead);
      const Outcome outcome = program.Run();
      CHECK_MESSAGE(outcome.code == 0, outcome.err);
    }
    stored.store.SetClock(0);
  }
}

// Of noise, larger than what opening a shard reads of it.
std::string LargeShard(std::mt19937& random) {
  std::string shard;
  for (int64_t label : {0, 1, 2, 0}) {
    Tensor noise(DType::kUInt8, {160, 160, 3});
    for (uint8_t& value : noise.values<uint8_t>()) {
      value = static_cast<uint8_t>(random());
    }
    AppendRecord(
        *EncodeImageRecord({.encoded = *EncodePng(noise), .label = label}),
        &shard);
  }
  return shard;
}

TEST_CASE("--skip-bad passes over no record that a store refuses") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  std::mt19937 random(1);
  for (const char* name : {"train-00000-of-00002", "train-00001-of-00002"}) {
    store.Put(fmt::format("large/{}", name), LargeShard(random));
  }
  std::mutex mutex;
  int asked = 0, allowed = 1'000'000;
  store.Fail([&](const ServedRequest& request, int) {
    const Asked what = WhatIsAsked(request);
    const bool shard = what.verb == "GET" && !what.path.ends_with(".idx") &&
                       what.path.starts_with("s3://b/large/train-");
    const std::lock_guard lock(mutex);
    return shard && ++asked > allowed ? StoreFault::kForbidden
                                      : StoreFault::kNone;
  });
  const auto train = [&](int may_be_asked) {
    asked = 0;
    allowed = may_be_asked;
    return RunProgram(
        kResNet50, {"train", "--data", "s3://b/large", "--classes", "3",
                    "--model", "resnet20", "--steps", "4", "--batch-size", "2",
                    "--threads", "1", "--skip-bad", "1000"});
  };
  const Outcome good = train(1'000'000);
  REQUIRE_MESSAGE(good.code == 0, good.err);
  const int all = asked;
  CHECK(all > 2 + 4);                              // opened, then read
  for (int from = 0; from < all / 2; from += 2) {  // not what comes too late
    CAPTURE(from);
    const Outcome outcome = train(from);
    CHECK(outcome.code == 1);
    CHECK_MESSAGE(Contains(testing::LastLine(outcome.err), "permission denied"),
                  outcome.err);
  }
}

int Occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

// How long the store is away: more than what is said of (RetryPolicy::quiet),
// and short enough to wait for. SLUICE_TEST_OUTAGE_SECONDS=75 is a minute and
// more.
std::chrono::seconds Away() {
  const char* given = std::getenv("SLUICE_TEST_OUTAGE_SECONDS");
  return std::chrono::seconds(given == nullptr ? 7 : std::atoi(given));
}

TEST_CASE("a store that goes away for a while changes no bit of a training") {
  if (!KnowsStores()) return;
  Stored stored;
  const StoreSettings settings(stored.store);
  const TemporaryFolder folder;
  const auto train = [&](const std::string& log) {
    return RunProgram(
        kResNet50,
        {"train", "--data", "s3://b/records", "--model", "resnet20", "--steps",
         "6", "--batch-size", "2", "--threads", "1", "--deterministic",
         "--seed", "4", "--log-dir", folder / log});
  };
  const Outcome plain = train("plain");
  REQUIRE_MESSAGE(plain.code == 0, plain.err);
  // Once it has given a record, it gives nothing for some seconds.
  std::optional<std::chrono::steady_clock::time_point> since;
  int refused = 0;
  stored.store.Fail([&](const ServedRequest& request, int) {
    const auto now = std::chrono::steady_clock::now();
    const bool record = request.method == "GET" &&
                        request.target.starts_with("/b/records/train-0000") &&
                        !request.target.ends_with(".idx");
    if (record && !since) {
      since = now;
      return StoreFault::kNone;
    }
    if (!since || now - *since > Away()) {
      return StoreFault::kNone;
    }
    return ++refused % 2 == 0 ? StoreFault::kNoAnswer : StoreFault::kSlowDown;
  });
  const Outcome through = train("through");
  stored.store.Fail(nullptr);
  REQUIRE_MESSAGE(through.code == 0, through.err);
  CHECK(refused > 3);
  CHECK(testing::SameBits(folder / "plain", folder / "through", 6));
  // It was said, and that it was over.
  CAPTURE(through.err);
  CHECK(Occurrences(through.err, " has failed since ") == 1);
  CHECK(Occurrences(through.err, " answers again, after ") == 1);
}

}  // namespace
}  // namespace sluice
#endif
