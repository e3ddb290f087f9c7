// The same files are the same bad examples, whatever their folder is called
// when a training goes on.
#include "models/train/hooks/keep_bad_examples.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/json.h"
#include "io/files/file.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

using Messages = std::vector<std::string>;

// Where a process is told that its data are.
struct Told {
  std::string data_dir, pets, shards;
};

TrainerSpec SpecOfPaths() {
  return {.name = "toy",
          .input = {},
          .model = {},
          .flags = {{"pets", "", "", {"drawn"}, Flag::Kind::kData},
                    {"shards", "", "", {}, Flag::Kind::kPath},
                    {"model", "", "", {}}}};
}

class Process {
 public:
  explicit Process(const Told& told)
      : bad_(std::make_shared<BadExamples>(100)),
        hook_(bad_, SpecOfPaths(), RunOf(told)) {}

  void Meet(const Messages& messages) {
    for (const std::string& message : messages) {
      REQUIRE(bad_->Add(place_++, DataLoss(message)).ok());
    }
  }
  Messages listed() const { return bad_->messages(); }
  KeepBadExamples& hook() { return hook_; }

 private:
  static RunContext RunOf(const Told& told) {
    RunContext run;
    run.data_dir = told.data_dir;
    run.flags = {{"pets", told.pets}, {"shards", told.shards}, {"model", "b"}};
    return run;
  }

  std::shared_ptr<BadExamples> bad_;
  KeepBadExamples hook_;
  int64_t place_ = 0;
};

// What is said of the bad ones, in a process that was told so.
Messages SaidOf(const Told& told) {
  const auto in = [](const std::string& folder, const std::string& name) {
    return JoinPath(WithoutQuery(folder), name);
  };
  const std::string twice = in(told.pets, "b/x y.jpeg");
  return {
      "'" + in(told.pets, "b/x.jpeg") + "': no JPEG",
      twice + ": " + twice + " is a pipe",
      in(told.pets, "pets/./a pets/\xff.png") + " (ends early)",
      in(told.data_dir, "model.bin") + ": label 70 of b",
      in(ParentDirectory(told.shards), "train-00003.tar") + ": member 7",
      "nothing of a path",
      "pets-b/x.jpeg and b: no picture",
  };
}

TEST_CASE("whatever the data are called, their bad examples are known") {
  const std::vector<Told> all = {
      {"numbers", "pets", "shards/train-*.tar"},
      {"./numbers/", "./pets", "./shards/train-*.tar"},
      {"../at/numbers", "../at/pets", "../at/shards/train-0000[0-9].tar"},
      {"/at/numbers", "/at/pets", "/at/shards/train-*.tar"},
      {"/at/./numbers", "/at/./pets/", "/at//shards/train-*.tar"},
      // One below the other, and moved.
      {"/at/pets/numbers", "/at/pets", "/at/pets/shards/train-*.tar"},
      {"/ats/pets and more", "/ats/pe\xffts", "/ats/shards/train-*.tar"},
      {".", "..", "../../train-*.tar"},
      {"https://host/numbers", "https://host/pets?signed=now",
       "s3://bucket/train-*.tar"},
  };
  for (const Told& before : all) {
    for (const Told& now : all) {
      CAPTURE(before.pets);
      CAPTURE(now.pets);
      Process first(before);
      first.Meet(SaidOf(before));
      Process second(now);
      second.hook().RestoreState(first.hook().SaveState());
      second.Meet(SaidOf(now));
      Process whole(now);
      whole.Meet(SaidOf(now));
      REQUIRE(second.listed().size() == whole.listed().size());
      for (size_t i = 0; i < whole.listed().size(); ++i) {
        // Of bytes that are no UTF-8 others are kept.
        CHECK(Json(second.listed()[i]).LenientText() ==
              Json(whole.listed()[i]).LenientText());
      }
    }
  }
}

TEST_CASE("a word in the place of a path is none") {
  const Messages said = {"a drawn one is bad"};
  Process first({"", "drawn", ""});
  first.Meet(said);
  Process second({"", "/at/pets", ""});
  second.hook().RestoreState(first.hook().SaveState());
  CHECK(second.listed() == said);
}

TEST_CASE("messages that were kept as they are, are read") {
  Process process({"", "/at/pets", ""});
  process.hook().RestoreState(R"(["pets/a.png: bad", "/at/pets/b.png: bad"])");
  process.Meet({"/at/pets/b.png: bad"});
  CHECK(process.listed() == Messages{"pets/a.png: bad", "/at/pets/b.png: bad"});
}

}  // namespace
}  // namespace sluice
