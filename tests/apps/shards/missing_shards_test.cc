// Shards that are missing or hold nothing, of records and of tar archives, here
// and in a store: an error that names one, unless --allow-missing-shards is
// given or a pattern leaves them out; and how many there are is said.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/files/record.h"
#include "io/images/png.h"
#include "io/records/image_records.h"
#include "tests/support/mnist_program.h"
#include "tests/support/random.h"
#include "tests/support/store_program.h"
#include "tests/support/tar_bytes.h"

#if SLUICE_HAVE_PNG && SLUICE_HAVE_PROTOBUF
namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ObjectStore;
using testing::Outcome;
using testing::Random;
using testing::RunMnist;
using testing::TemporaryFolder;

constexpr int kInShard = 3;

// What became of each shard of a part.
enum class Fate : uint8_t { kWhole, kMissing, kEmpty };
using Fates = std::vector<Fate>;

int64_t Count(const Fates& fates, Fate fate) {
  return std::count(fates.begin(), fates.end(), fate);
}

std::string NameOf(const char* part, size_t number, size_t count, bool tars) {
  return fmt::format("{}-{:05}-of-{:05}{}", part, number, count,
                     tars ? ".tar" : "");
}

std::string Shard(size_t number, bool tars) {
  const std::string png =
      *EncodePng(Tensor::Full(DType::kUInt8, {28, 28, 1}, 7));
  std::string bytes;
  for (int i = 0; i < kInShard; ++i) {
    const auto label = static_cast<int64_t>((number * kInShard + i) % 10);
    if (tars) {
      const std::string key = fmt::format("{}-{}", number, i);
      bytes += testing::TarFile(key + ".cls", std::to_string(label));
      bytes += testing::TarFile(key + ".png", png);
    } else {
      AppendRecord(*EncodeImageRecord({.encoded = png, .label = label}),
                   &bytes);
    }
  }
  return tars ? bytes + testing::TarEnd() : bytes;
}

void WritePart(const std::string& folder, const char* part, const Fates& fates,
               bool tars) {
  fs::create_directories(folder);
  for (size_t i = 0; i < fates.size(); ++i) {
    if (fates[i] == Fate::kMissing) continue;
    std::ofstream(folder + "/" + NameOf(part, i, fates.size(), tars),
                  std::ios::binary)
        << (fates[i] == Fate::kWhole ? Shard(i, tars)
            : tars                   ? testing::TarEnd()
                                     : "");
  }
}

// A training of one step, with a new folder each time.
class Trainings {
 public:
  Outcome operator()(const std::string& data,
                     const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "train",   "--data-dir",   data, "--log-dir",
        NewLog(),  "--steps",      "1",  "--model",
        "softmax", "--batch-size", "3",  "--label-offset",
        "0",       "--threads",    "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunMnist(arguments);
  }
  std::string log() const { return folder_ / std::to_string(runs_); }

 private:
  std::string NewLog() {
    ++runs_;
    return log();
  }

  TemporaryFolder folder_;
  int runs_ = 0;
};

// "3 of 5 shards of 'train', 1 of them empty, 6 pictures"
std::string Said(const Fates& fates) {
  const size_t missing = Count(fates, Fate::kMissing);
  const int64_t empty = Count(fates, Fate::kEmpty);
  std::string text =
      missing == 0
          ? std::to_string(fates.size())
          : fmt::format("{} of {}", fates.size() - missing, fates.size());
  text += fates.size() == 1 ? " shard of 'train'" : " shards of 'train'";
  if (empty > 0) text += fmt::format(", {} of them empty", empty);
  return text +
         fmt::format(", {} pictures", kInShard * Count(fates, Fate::kWhole));
}

// Trains on shards of such fates at `where`, as they are, with the flag and by
// a pattern.
void CheckFates(const std::string& where, const Fates& fates, bool tars,
                Trainings& train) {
  const auto name = [&](Fate fate) {
    const size_t at =
        std::find(fates.begin(), fates.end(), fate) - fates.begin();
    return NameOf("train", at, fates.size(), tars);
  };
  const bool missing = Count(fates, Fate::kMissing) > 0;
  const bool empty = Count(fates, Fate::kEmpty) > 0;
  const std::string of_empty =
      fmt::format("'{}/{}' holds nothing", where, name(Fate::kEmpty));
  const Outcome plain = train(where);
  CAPTURE(plain.err);
  CHECK(plain.code == (missing || empty ? 1 : 0));
  CHECK(Contains(plain.err, missing ? "missing: " + name(Fate::kMissing)
                            : empty
                                ? of_empty
                                : fmt::format("'{}': {}", where, Said(fates))));
  const bool advised =
      plain.err.find("--allow-missing-shards goes on") != std::string::npos;
  CHECK(advised == (missing || empty));
  const Outcome allowed = train(where, {"--allow-missing-shards"});
  CAPTURE(allowed.err);
  CHECK(allowed.code == 0);
  CHECK(Contains(allowed.err, Said(fates)));
  // A pattern says which are meant, not that they may be empty.
  const Outcome fitting = train(where + "/train-*");
  CAPTURE(fitting.err);
  CHECK(fitting.code == (empty ? 1 : 0));
  CHECK(Contains(fitting.err, empty ? of_empty : Said(fates)));
}

Fates RandomFates(Random& random) {
  Fates fates(random.Between(1, 5));
  for (Fate& fate : fates) fate = static_cast<Fate>(random.Between(0, 2));
  fates[random.Between(0, static_cast<int64_t>(fates.size()) - 1)] =
      Fate::kWhole;
  return fates;
}

TEST_CASE("shards that are missing or empty") {
  Random random(11);
  Trainings train;
  for (int round = 0; round < 12; ++round) {
    const bool tars = round % 2 == 1;
    const Fates fates = RandomFates(random);
    const TemporaryFolder folder;
    WritePart(folder / "data", "train", fates, tars);
    CAPTURE(round);
    CheckFates(folder / "data", fates, tars, train);
  }
}

TEST_CASE("the same in an object store") {
  if (!testing::KnowsStores()) return;
  ObjectStore store;
  const testing::StoreSettings settings(store);
  Trainings train;
  for (const bool tars : {false, true}) {
    for (const Fates& fates :
         {Fates{Fate::kWhole, Fate::kMissing, Fate::kWhole},
          Fates{Fate::kEmpty, Fate::kWhole}}) {
      const TemporaryFolder folder;
      WritePart(folder / "data", "train", fates, tars);
      const std::string prefix = fmt::format("{}{}", tars, fates.size());
      testing::Upload(store, folder / "data", prefix);
      CheckFates("s3://b/" + prefix, fates, tars, train);
    }
  }
}

TEST_CASE("a pattern is of parts, names and a folder that is found again") {
  const TemporaryFolder folder;
  const std::string data = folder / "data";
  const Fates whole(4, Fate::kWhole);
  WritePart(data, "train", whole, false);
  WritePart(data, "validation", whole, false);
  Trainings train;
  const Outcome trained = train(data + "/*-0000[12]-of-*");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK(Contains(trained.err, "2 of 4 shards of 'train', 6 pictures"));
  CHECK(Contains(trained.err, "2 of 4 shards of 'validation', 6 pictures"));
  // Nothing needs to be said again.
  const Outcome evaluated = RunMnist({"eval", "--log-dir", train.log()});
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(Contains(evaluated.err, "2 of 4 shards of 'validation', 6 pictures"));
  CHECK(Contains(evaluated.out, ": test loss "));
  // Nor is the flag.
  fs::remove(data + "/" + NameOf("validation", 2, 4, false));
  const Outcome allowed = train(data, {"--allow-missing-shards"});
  CHECK_MESSAGE(allowed.code == 0, allowed.err);
  CHECK(RunMnist({"eval", "--log-dir", train.log()}).code == 0);
  // But of other data it has not been said.
  const std::string other = folder / "other";
  const Fates lacks = {Fate::kWhole, Fate::kMissing, Fate::kWhole};
  WritePart(other, "validation", lacks, false);
  const Outcome of_other =
      RunMnist({"eval", "--log-dir", train.log(), "--data-dir", other});
  CHECK(of_other.code == 1);
  CHECK(Contains(of_other.err, "--allow-missing-shards goes on without"));
  // Of those to train on, more or fewer than were trained on.
  const std::string some = data + "/train-0000[01]-of-*";
  const Outcome of_some =
      RunMnist({"eval", "--log-dir", train.log(), "--data-dir", some});
  CHECK_MESSAGE(of_some.code == 0, of_some.err);
  CHECK(Contains(of_some.err, "some may be among those that were trained on"));
  // What no shard fits.
  CHECK(Contains(train(data + "/nothing-*").err,
                 fmt::format("no file in '{}' fits 'nothing-*'", data)));
  std::ofstream(data + "/other.bin") << "x";
  CHECK(Contains(train(data + "/o*").err,
                 "fits 'other.bin', which is not called as shards are"));
  CHECK(Contains(train(data + "/valid*").err, "no records of \"train\""));
  // A folder may have such a name.
  fs::rename(data, folder / "data[1]");
  CHECK(train(folder / "data[1]", {"--allow-missing-shards"}).code == 0);
}

}  // namespace
}  // namespace sluice
#endif
