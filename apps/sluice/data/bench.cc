#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/sluice/data/bench_pictures.h"
#include "apps/sluice/data/data.h"
#include "apps/sluice/data/parallel.h"
#include "apps/sluice/json.h"
#include "apps/sluice/tensor_file.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "engine/thread_annotations.h"
#include "io/counter_random.h"
#include "io/files/without_query.h"
#include "io/images/image.h"
#include "io/pipeline/dataset.h"
#include "io/records/record_files.h"

namespace sluice::tool {
namespace {

using Clock = std::chrono::steady_clock;

// The stages take turns, so that what else the machine does meets all alike.
constexpr int kRounds = 5;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Does the i-th piece of work; returns how many pictures that is.
using Work = std::function<Result<double>(int64_t i)>;

// Works for so long on `threads` threads, each with what `make_work` gives it;
// returns pictures per second. What has begun is ended and counts, as does the
// time it takes. `next` is the number of the next piece of work.
double RateOf(const std::function<Work()>& make_work, int threads,
              double seconds, std::atomic<int64_t>& next) {
  Mutex mutex;
  double pictures = 0;
  const Clock::time_point begin = Clock::now();
  ThrowIfError(ForEach(threads, threads, [&](int64_t) -> Status {
    const Work work = make_work();
    double done = 0;
    while (SecondsSince(begin) < seconds) {
      SLUICE_ASSIGN_OR_RETURN(const double more, work(next++));
      done += more;
    }
    const MutexLock lock(mutex);
    pictures += done;
    return {};
  }));
  return pictures / SecondsSince(begin);
}

Result<Tensor> DecodeCropped(const BenchPictures& pictures, int64_t i,
                             int64_t side) {
  SLUICE_ASSIGN_OR_RETURN(const EncodedPicture picture, pictures.Read(i));
  return DecodeRandomResizedCrop(picture.encoded, picture.name, side,
                                 HashKey(0, i));
}

// Batches as training takes them, from the picture `first` on. The first batch
// is not timed, as the threads begin with it; when time is up there are about
// as many begun as then.
double BatchRate(const BenchPictures& pictures, const BenchDataOptions& options,
                 double seconds, int64_t& first) {
  const auto read = [&pictures, &options, first](Example& example) {
    const int64_t i = first + example["record"].IntAt(0);
    Example made;
    made.Set("image", DecodeCropped(pictures, i, options.size).ValueOrThrow());
    example = std::move(made);
  };
  Iterator batches = datasets::RecordNumbers(pictures.size(), "bench")
                         .Repeat()
                         .Map(read, {.threads = options.threads})
                         .Batch(options.batch)
                         .Prefetch(2)
                         .MakeIterator();
  Example batch;
  (void)batches.Next(&batch).ValueOrThrow();
  const Clock::time_point begin = Clock::now();
  int64_t done = 0;
  do {
    (void)batches.Next(&batch).ValueOrThrow();
    done += options.batch;
  } while (SecondsSince(begin) < seconds);
  first += options.batch + done;
  return static_cast<double>(done) / SecondsSince(begin);
}

struct Stage {
  std::string name;
  std::function<double(double seconds)> rate;  // pictures per second
  std::vector<double> rates = {};              // of the rounds

  double Median() const { return rates[rates.size() / 2]; }  // once sorted
};

std::vector<Stage> StagesOf(const BenchPictures& pictures,
                            const BenchDataOptions& options) {
  std::vector<Stage> stages;
  const auto add = [&](const char* name, std::function<Work()> make_work) {
    stages.push_back(
        {name,
         [&options, make_work = std::move(make_work),
          next = std::make_shared<std::atomic<int64_t>>(0)](double seconds) {
           return RateOf(make_work, options.threads, seconds, *next);
         }});
  };
  // Each picture by itself; all such work is the same for all threads.
  const auto add_each = [&](const char* name,
                            std::function<Status(int64_t)> work) {
    Work counted = [work = std::move(work)](int64_t i) -> Result<double> {
      SLUICE_RETURN_IF_ERROR(work(i));
      return 1.0;
    };
    add(name, [counted] { return counted; });
  };
  const auto read = [&pictures](int64_t i) {
    return pictures.Read(i).status();
  };
  if (pictures.in_shards()) {
    add("read", [&pictures] { return pictures.MakePieceReader(); });
    add_each("parse", read);
  } else {
    add_each("read", read);
  }
  add_each("decode", [&pictures](int64_t i) -> Status {
    SLUICE_ASSIGN_OR_RETURN(const EncodedPicture picture, pictures.Read(i));
    return DecodeImage(picture.encoded, picture.name).status();
  });
  add_each("crop", [&pictures, side = options.size](int64_t i) {
    return DecodeCropped(pictures, i, side).status();
  });
  stages.push_back({"batch", [&pictures, &options,
                              first = int64_t{0}](double seconds) mutable {
                      return BatchRate(pictures, options, seconds, first);
                    }});
  return stages;
}

void PrintTable(const std::string& path, const BenchPictures& pictures,
                const BenchDataOptions& options,
                const std::vector<Stage>& stages, double megabytes) {
  fmt::print(
      "'{}': {} pictures, {} bytes; {} threads, {} x {}, batches of {}\n",
      Printable(WithoutQuery(path)), pictures.size(), pictures.bytes(),
      options.threads, options.size, options.size, options.batch);
  fmt::print("{:<8} {:>12} {:>12} {:>12} {:>10}\n", "stage", "pictures/s",
             "least", "most", "MB/s");
  for (const Stage& stage : stages) {
    fmt::print("{:<8} {:>12.1f} {:>12.1f} {:>12.1f} {:>10.1f}\n", stage.name,
               stage.Median(), stage.rates.front(), stage.rates.back(),
               stage.Median() * megabytes);
  }
}

}  // namespace

void BenchData(const BenchDataOptions& options) {
  const BenchPictures pictures(options.path, options.part, options.threads);
  std::vector<Stage> stages = StagesOf(pictures, options);
  const auto runs = static_cast<int64_t>(kRounds * stages.size());
  Progress progress(runs, "measurements");
  for (int round = 0; round < kRounds; ++round) {
    for (Stage& stage : stages) {
      stage.rates.push_back(stage.rate(options.seconds / kRounds));
      progress.Add(1);
    }
  }
  for (Stage& stage : stages) {
    std::sort(stage.rates.begin(), stage.rates.end());
  }
  const double megabytes = static_cast<double>(pictures.bytes()) / 1e6 /
                           static_cast<double>(pictures.size());
  if (!options.json) {
    PrintTable(options.path, pictures, options, stages, megabytes);
    return;
  }
  for (const Stage& stage : stages) {
    PrintJson({{"stage", stage.name},
               {"pictures_per_second", stage.Median()},
               {"least", stage.rates.front()},
               {"most", stage.rates.back()},
               {"megabytes_per_second", stage.Median() * megabytes},
               {"pictures", pictures.size()},
               {"bytes", pictures.bytes()},
               {"threads", options.threads},
               {"size", options.size},
               {"batch", options.batch}});
  }
}

}  // namespace sluice::tool
