// Times a collective of a job's processes (dist/collective/group.h) over sizes,
// and checks what it gives. The rows are those of nccl-tests:
// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
//
// What is timed: a repetition is a barrier, the common start, and a collective.
// Each rank's clock runs from its return from the one to its return from the
// other; ranks leave a barrier a hop or so apart, and the first's wait for the
// last is in its time. A row has the medians of rank 0 and of the slowest rank,
// of which the bandwidths are: a broadcast's root does not wait for the others.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/guarded.h"
#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice::dist {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kElementBytes = sizeof(float);
constexpr int kRoot = 0;  // of a broadcast
const std::vector<std::string> kCollectives = {"all_reduce", "reduce_scatter",
                                               "broadcast",  "all_gather",
                                               "all_to_all", "barrier"};

struct Options {
  std::string collective = "all_reduce";
  int64_t min = 4096, max = 100 << 20;  // bytes
  double factor = 8;
  double seconds = 1;  // a row
  std::string transport = "auto";
  std::string all_reduce = "auto";
  bool json = false;
};

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count() * 1e6;
}

// A rank's element i: float32 sums are exact, and no other of 11 ranks has it.
float Given(int rank, int64_t i) {
  return static_cast<float>((7 * i + 5 * rank) % 11);
}

// A collective of one size, in place but for all_to_all. The size is that of
// what each rank has before, of all_gather its result's.
class Subject {
 public:
  Subject(Group& group, std::string collective, int64_t bytes)
      : group_(group),
        collective_(std::move(collective)),
        count_(bytes / kElementBytes),
        each_(count_ / group.size()),
        data_(static_cast<size_t>(count_)),
        sent_(collective_ == "all_to_all" ? data_ : std::vector<float>()) {}

  void Run() { ThrowIfError(TryRun()); }
  // In microseconds; the barrier before it is not timed.
  double TimedRun() {
    ThrowIfError(group_.Barrier("start"));
    const auto begin = Clock::now();
    Run();
    return MicrosecondsSince(begin);
  }

  // Runs once on known values: how many elements of this rank's result are
  // wrong. Leaves zeros, whose sum stays what it is however often it is taken.
  int64_t CountWrong() {
    int64_t i = 0, wrong = 0;
    std::vector<float>& given = sent_.empty() ? data_ : sent_;
    for (float& value : given) value = Given(group_.rank(), i++);
    Run();
    const bool part = collective_ == "reduce_scatter";
    const int64_t begin = part ? group_.rank() * each_ : 0;
    for (i = begin; i < (part ? begin + each_ : count_); ++i) {
      wrong += data_[static_cast<size_t>(i)] != Wanted(i) ? 1 : 0;
    }
    std::fill(given.begin(), given.end(), 0.0f);
    return wrong;
  }

 private:
  Status TryRun() {
    float* const data = data_.data();
    float* const mine = data + group_.rank() * each_;
    const int64_t bytes = count_ * kElementBytes, part = bytes / group_.size();
    if (collective_ == "barrier") return group_.Barrier("bench");
    if (collective_ == "broadcast")
      return group_.Broadcast("bench", data, bytes, kRoot);
    if (collective_ == "all_gather")
      return group_.AllGather("bench", mine, part, data);
    if (collective_ == "all_to_all")
      return group_.AllToAll("bench", sent_.data(), part, data);
    if (collective_ == "reduce_scatter") {
      return group_.ReduceScatter("bench", DType::kFloat32, data, count_, 1,
                                  Reduction::kSum);
    }
    return group_.AllReduce("bench", DType::kFloat32, data, count_,
                            Reduction::kSum);
  }
  float Wanted(int64_t i) const {
    if (collective_ == "broadcast") return Given(kRoot, i);
    const auto owner = static_cast<int>(i / each_);
    if (collective_ == "all_gather") return Given(owner, i);
    if (collective_ == "all_to_all")
      return Given(owner, group_.rank() * each_ + i % each_);
    float sum = 0;
    for (int rank = 0; rank < group_.size(); ++rank) sum += Given(rank, i);
    return sum;
  }

  Group& group_;
  const std::string collective_;
  const int64_t count_, each_;  // elements; a rank's part
  std::vector<float> data_, sent_;
};

// Rank 0's choice, after warming up.
int64_t Repetitions(Group& group, Subject& subject, double seconds) {
  subject.TimedRun();
  const auto begin = Clock::now();
  for (int i = 0; i < 5; ++i) subject.TimedRun();
  const double each = MicrosecondsSince(begin) / 5;
  auto n = static_cast<int64_t>(std::clamp(seconds * 1e6 / each, 5.0, 1e6));
  ThrowIfError(group.Broadcast("repetitions", &n, sizeof n, 0));
  return n;
}

// The most that any rank has.
template <typename T>
T MostOfAny(Group& group, const T& mine) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  ThrowIfError(group.AllGather("found", &mine, sizeof mine, all.data()));
  return *std::max_element(all.begin(), all.end());
}

// Bytes that a rank must send for each of the size: bus bandwidth counts them.
double SentPerByte(const std::string& collective, int processes) {
  const double others = processes - 1;
  if (collective == "all_reduce") return 2 * others / processes;
  if (collective == "all_gather" || collective == "reduce_scatter")
    return others / processes;
  if (collective == "all_to_all") return others / 2;
  return collective == "broadcast" && processes > 1 ? 1 : 0;
}

// A row's values or, as the table's header, its keys.
std::string Line(const Json& row, bool header) {
  std::string line;
  for (const auto& [key, value] : row.items()) {
    std::string text =
        value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_number_float())
      text = fmt::format("{:.2f}", value.get<double>());
    if (header) text = key;
    line += fmt::format("{:>{}}", text, std::max<size_t>(key.size(), 9) + 2);
  }
  return line;
}

Json Measure(Group& group, const Options& options, int64_t bytes) {
  Subject subject(group, options.collective, bytes);
  const int64_t wrong = MostOfAny(group, subject.CountWrong());
  const int64_t before = group.bytes_sent();
  subject.Run();
  const int64_t sent = MostOfAny(group, group.bytes_sent() - before);
  const int64_t repetitions = Repetitions(group, subject, options.seconds);
  std::vector<double> times(static_cast<size_t>(repetitions));
  for (double& time : times) time = subject.TimedRun();
  const auto median = times.begin() + repetitions / 2;
  std::nth_element(times.begin(), median, times.end());
  const double slowest = MostOfAny(group, *median);
  const double share = SentPerByte(options.collective, group.size());
  const double gb_s = static_cast<double>(bytes) / slowest / 1e3;
  return {{"size", bytes},
          {"count", bytes / kElementBytes},
          {"dtype", "float32"},
          {"repetitions", repetitions},
          {"microseconds", *median},
          {"slowest_microseconds", slowest},
          {"alg_gb_s", gb_s},
          {"bus_gb_s", gb_s * share},
          {"sent_bytes", sent},
          {"formula_bytes", std::llround(share * static_cast<double>(bytes))},
          {"verdict", wrong != 0  ? "WRONG"
                      : bytes > 0 ? "ok"
                                  : "none"}};
}

std::vector<int64_t> Sizes(const Options& options, int processes) {
  if (options.collective == "barrier") return {0};
  const int64_t unit = kElementBytes * processes;
  const auto max = static_cast<double>(options.max);
  std::vector<int64_t> sizes;
  for (auto b = static_cast<double>(options.min); b < max; b *= options.factor)
    sizes.push_back(static_cast<int64_t>(b));
  sizes.push_back(options.max);
  for (int64_t& b : sizes) b = std::max<int64_t>(b / unit, 1) * unit;
  return sizes;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Times and checks a job's collective: sluicerun -n 2 collective_bench");
  app.option_defaults()->always_capture_default();
  app.add_option("--collective", options.collective)
      ->check(CLI::IsMember(kCollectives));
  const CLI::Range sizes(kElementBytes, int64_t{1} << 40);
  app.add_option("--min", options.min, "Bytes of the first row")->check(sizes);
  app.add_option("--max", options.max, "Bytes of the last row")->check(sizes);
  app.add_option("--factor", options.factor, "From a row's size to the next's")
      ->check(CLI::Range(1.1, 1e6));
  app.add_option("--seconds", options.seconds, "About, a row; 5 runs or more")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--transport", options.transport,
                 "Between neighbours: auto, tcp or shared memory");
  app.add_option("--all-reduce", options.all_reduce,
                 "auto, ring, halving-doubling or hierarchical");
  app.add_flag("--json", options.json, "One object a row");
  app.footer(R"(
size           the bytes of a rank's data, in all_gather its result's; whole
               elements for each rank; 0 of a barrier
microseconds   rank 0's median from a barrier to the result; the slowest rank's
alg_gb_s       size / slowest_microseconds, in 1e9 bytes per second
bus_gb_s       that times 2 (n - 1) / n of all_reduce, (n - 1) / n of all_gather
               and reduce_scatter, (n - 1) / 2 of all_to_all, which goes along a
               ring, and 1 of broadcast, which is from rank 0
sent_bytes     the most that a rank sent in one run, with headers
formula_bytes  what it must: the size times bus_gb_s's factor
verdict        of each rank's result beside the exact one; none of a barrier
The exit code is 1 where a result is wrong.)");
  CLI11_PARSE(app, argc, argv);
  const auto info = ReadLaunchInfo().ValueOrThrow();
  if (!info) throw Error(InvalidArgument("start it with sluicerun -n N"));
  GroupOptions joining;
  joining.transport = ParseTransport(options.transport).ValueOrThrow();
  joining.all_reduce = ParseAlgorithm(options.all_reduce).ValueOrThrow();
  joining.note = [](std::string_view line) { std::cerr << line << '\n'; };
  const auto group = Group::Join(*info, joining).ValueOrThrow();
  bool header = !options.json, right = true;
  for (const int64_t bytes : Sizes(options, group->size())) {
    const Json row = Measure(*group, options, bytes);
    right = right && row["verdict"] != "WRONG";
    // Rank 0 alone prints and fails: the launcher ends the others of a rank
    // that does, and the last row is to be seen.
    if (group->rank() != 0) continue;
    if (std::exchange(header, false)) std::cout << Line(row, true) << '\n';
    std::cout << (options.json ? row.dump() : Line(row, false)) << std::endl;
  }
  return right || group->rank() != 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::dist

int main(int argc, char** argv) {
  return sluice::bench::Guarded("collective_bench", sluice::dist::Main, argc,
                                argv);
}
