// Pictures in an object store: as a folder and in records, cached here, and
// changed there.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/places.h"
#include "tests/support/cached_pictures.h"
#include "tests/support/store_program.h"

#if SLUICE_HAVE_PNG
namespace sluice {
namespace {

using testing::CachedPictures;
using testing::Contains;
using testing::KnowsStores;
using testing::ObjectStore;
using testing::Outcome;
using testing::RunProgram;
using testing::RunResNet50;
using testing::SameTensors;
using testing::StoreFault;
using testing::StoreSettings;
using testing::TextOf;
using testing::Upload;
using Strings = std::vector<std::string>;
using Tensors = std::vector<NamedTensor>;

TEST_CASE("pictures of a store are cached here, and never stale") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  CachedPictures pictures;
  Upload(store, pictures.data, "pictures");
  const Tensors plain = pictures.Train({});
  const std::string here = pictures.data;
  pictures.data = "s3://b/pictures";
  CHECK(SameTensors(plain, pictures.Train({})));
  std::string err;
  for (const std::string stage : {"bytes", "image"}) {
    CAPTURE(stage);
    CHECK(SameTensors(plain, pictures.Train(pictures.Cached(stage), &err)));
    store.ResetCounts();
    CHECK(SameTensors(plain, pictures.Train(pictures.Cached(stage), &err)));
    CHECK(Contains(err, "32 are there"));
    // Neither a picture nor, one by one, its version.
    CHECK(store.Count("GET") < 12);
    CHECK(store.Count("HEAD") < 60);
    // As large as before, as far as that can be.
    const std::string key = "pictures/train/bee/3.png";
    store.Put(key, TextOf(here + "/train/dog/1.png"));
    const Tensors cached = pictures.Train(pictures.Cached(stage));
    CHECK(SameTensors(cached, pictures.Train({})));
    CHECK(!SameTensors(cached, plain));
    store.Put(key, TextOf(here + "/train/bee/3.png"));
    CHECK(SameTensors(plain, pictures.Train(pictures.Cached(stage))));
  }
  // Predictions of a folder there.
  const Outcome predicted = RunResNet50(
      {"predict", "--model", "resnet20", "--log-dir",
       pictures.LogOf(pictures.runs), "--csv", "s3://b/pictures/val"});
  CHECK_MESSAGE(predicted.code == 0, predicted.err);
  CHECK(Contains(predicted.out, "s3://b/pictures/val/ant/0.png"));
  CHECK(testing::Lines(predicted.out) >= 8);
}

// A picture that becomes another one between the first epoch and the second.
class ChangedBetweenEpochs {
 public:
  ChangedBetweenEpochs(ObjectStore& store, const std::string& key,
                       std::string bytes)
      : store_(store), key_(key) {
    store.Fail([this](const testing::ServedRequest& request, int) {
      return Meet(request);
    });
    // Not by one of the store's own threads, which have it locked.
    changer_ = std::thread([this, bytes = std::move(bytes)] {
      while (state_ == State::kOld) std::this_thread::yield();
      if (state_ == State::kOver) return;
      store_.Put(key_, bytes);
      state_ = State::kNew;
    });
  }
  ~ChangedBetweenEpochs() {
    State old = State::kOld;
    state_.compare_exchange_strong(old, State::kOver);
    changer_.join();
    store_.Fail(nullptr);
  }
  bool has_changed() const { return state_ == State::kNew; }

 private:
  enum class State : uint8_t { kOld, kWanted, kNew, kOver };

  // What begins the second epoch waits for the change: its listing, or, without
  // a cache, the picture itself.
  StoreFault Meet(const testing::ServedRequest& request) {
    if (state_ == State::kNew) return StoreFault::kNone;
    const bool picture =
        request.method == "GET" && request.target == "/b/" + key_;
    const bool listing = request.target.find("list-type") != std::string::npos;
    if (read_ && (picture || listing)) state_ = State::kWanted;
    if (state_ == State::kWanted) return StoreFault::kNoAnswer;
    read_ = read_ || picture;
    return StoreFault::kNone;
  }

  ObjectStore& store_;
  const std::string key_;
  bool read_ = false;  // by the store's threads, one at a time
  std::atomic<State> state_ = State::kOld;
  std::thread changer_;
};

TEST_CASE("what changes in a store is read from the next epoch on") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  CachedPictures pictures;
  Upload(store, pictures.data, "pictures");
  const std::string here = pictures.data;
  pictures.data = "s3://b/pictures";
  const std::string key = "pictures/train/bee/3.png";
  const std::string old = TextOf(here + "/train/bee/3.png");
  const auto train = [&](const Strings& more) {
    store.Put(key, old);
    const ChangedBetweenEpochs change(store, key,
                                      TextOf(here + "/train/dog/1.png"));
    Tensors trained = pictures.Train(more);
    CHECK(change.has_changed());
    return trained;
  };
  const Tensors plain = train({});
  CHECK(!SameTensors(plain, pictures.Train({})));  // changed from the start
  store.Put(key, old);
  CHECK(!SameTensors(plain, pictures.Train({})));  // never
  for (const std::string stage : {"bytes", "image"}) {
    CAPTURE(stage);
    std::filesystem::remove_all(pictures.cache);
    CHECK(SameTensors(plain, train(pictures.Cached(stage))));
  }
}

TEST_CASE("a training is not resumed on pictures that have changed there") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  CachedPictures pictures;
  Upload(store, pictures.data, "pictures");
  pictures.data = "s3://b/pictures";
  (void)pictures.Train({});
  Strings again = pictures.Arguments({}, "12");
  again[again.size() - 1] = pictures.LogOf(1);
  const Outcome resumed = RunResNet50(again);
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  store.Put("pictures/train/bee/3.png",
            store.Get("pictures/train/bee/3.png").bytes + "more");
  again = pictures.Arguments({}, "16");
  again[again.size() - 1] = pictures.LogOf(1);
  const Outcome refused = RunResNet50(again);
  CHECK(refused.code == 1);
  CAPTURE(refused.err);
  CHECK(Contains(refused.err, "images-"));
}

#if SLUICE_HAVE_PROTOBUF
TEST_CASE("records are made of a store's pictures and read there, cached") {
  if (!KnowsStores()) return;
  ObjectStore store;
  const StoreSettings settings(store);
  CachedPictures pictures;
  Upload(store, pictures.data, "pictures");
  const auto make = [&](const std::string& from, const std::string& to) {
    for (const auto& [folder, part] :
         {std::pair("/train", "train"), {"/val", "validation"}}) {
      const Outcome made = RunProgram(
          SLUICE_BIN_DIR "/sluice",
          {"data", "make", from + folder, to, "--part", part, "--shards", "3"});
      REQUIRE_MESSAGE(made.code == 0, made.err);
    }
  };
  const std::string here = pictures.data;
  make("s3://b/pictures", "s3://b/records");
  make(here, pictures.folder / "records");
  for (const char* name :
       {"train-00001-of-00003", "validation-00002-of-00003"}) {
    REQUIRE(store.Has(fmt::format("records/{}", name)));
    CHECK((store.Get(fmt::format("records/{}", name)).bytes ==
           TextOf(pictures.folder / fmt::format("records/{}", name))));
  }
  pictures.data = pictures.folder / "records";
  const Tensors plain = pictures.Train({});
  pictures.data = "s3://b/records";
  store.ResetCounts();
  CHECK(SameTensors(plain, pictures.Train({})));
  CHECK(store.Count("LIST") == 1);
  std::string err;
  for (int i = 0; i < 2; ++i) {
    CHECK(SameTensors(plain, pictures.Train(pictures.Cached(), &err)));
  }
  CHECK(Contains(err, "32 are there"));
  // Made again of other pictures.
  store.Put("pictures/train/bee/3.png", TextOf(here + "/train/dog/1.png"));
  make("s3://b/pictures", "s3://b/others");
  for (int i = 0; i < 3; ++i) {
    const std::string name = fmt::format("/train-0000{}-of-00003", i);
    store.Put("records" + name, store.Get("others" + name).bytes);
    store.Put("records" + name + ".idx",
              store.Get("others" + name + ".idx").bytes);
  }
  const Tensors changed = pictures.Train({});
  CHECK(!SameTensors(changed, plain));
  CHECK(SameTensors(changed, pictures.Train(pictures.Cached())));
}
#endif

}  // namespace
}  // namespace sluice
#endif
