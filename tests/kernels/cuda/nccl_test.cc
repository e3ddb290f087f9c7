// Steps that meet on their GPUs, through an emulated NCCL: random programs of
// all collectives against plain loops over all ranks' values, trainings against
// a ring of CPUs; and one rank with a real one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "tests/kernels/cuda/emulation/nccl_job.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice::testing {
namespace {

using cuda::emulation::NcclExchanges;
using cuda::emulation::SetNcclDelays;
using dist::NcclGroup;

enum class Verb { kSum, kMean, kGather, kScatter, kTrade, kSpread, kReduce };
constexpr int kVerbs = 7;

struct Line {
  Verb verb = Verb::kSum;
  DType dtype = DType::kFloat32;
  Shape shape;  // of x
  int root = 0;
  bool chain = false;  // x is what the line before made
};
struct Program {
  int ranks = 2;
  std::vector<Line> lines;
};
using Values = std::vector<std::vector<double>>;  // by rank

bool Sums(Verb verb) {
  return verb == Verb::kSum || verb == Verb::kMean || verb == Verb::kScatter ||
         verb == Verb::kReduce;
}

Shape MadeOf(const Line& line, int ranks) {
  Shape made = line.shape;
  if (line.verb == Verb::kGather) made.set(0, made[0] * ranks);
  if (line.verb == Verb::kScatter) made.set(0, made[0] / ranks);
  return made;
}

Program RandomProgram(std::mt19937& random) {
  const auto draw = [&](int n) { return static_cast<int>(random() % n); };
  constexpr DType kTypes[] = {
      DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
      DType::kInt32,   DType::kInt64,   DType::kUInt8,   DType::kBool};
  constexpr int64_t kSizes[] = {0, 1, 3, 7, 257};
  Program program;
  program.ranks = 2 + draw(3);
  const int lines = 1 + draw(6);
  while (static_cast<int>(program.lines.size()) < lines) {
    Line line;
    line.verb = static_cast<Verb>(draw(kVerbs));
    line.root = draw(program.ranks);
    line.dtype = kTypes[draw(8)];
    line.shape = {program.ranks * draw(3), kSizes[draw(5)]};
    if (!program.lines.empty() && draw(2) == 0) {
      line.chain = true;
      line.dtype = program.lines.back().dtype;
      line.shape = MadeOf(program.lines.back(), program.ranks);
    }
    const bool floating = IsFloating(line.dtype);
    const bool index =
        line.dtype == DType::kInt32 || line.dtype == DType::kInt64;
    if (line.verb == Verb::kMean && !floating) continue;
    if (Sums(line.verb) && !floating && !index) continue;
    if (line.verb == Verb::kScatter || line.verb == Verb::kTrade) {
      if (line.shape[0] % program.ranks != 0) continue;
    }
    if (line.shape[0] > 64) continue;
    program.lines.push_back(line);
  }
  return program;
}

double ValueOf(const Line& line, size_t l, int run, int rank, int64_t i) {
  const auto mixed =
      static_cast<uint32_t>(l * 31 + i * 7 + rank * 13 + run * 5);
  if (line.dtype == DType::kBool) return mixed / 3 % 2;
  return mixed % 5;
}

// What the verb makes of all ranks' values.
Values Applied(const Line& line, const Values& x, int ranks) {
  const auto n = static_cast<size_t>(ranks);
  const size_t each = x[0].size();
  std::vector<double> sum(each);
  for (const auto& one : x) {
    for (size_t i = 0; i < each; ++i) sum[i] += one[i];
  }
  Values y(n);
  for (size_t r = 0; r < n; ++r) {
    const size_t part = each / n;
    switch (line.verb) {
      case Verb::kSum:
        y[r] = sum;
        break;
      case Verb::kMean:
        y[r] = sum;
        for (double& v : y[r]) v /= ranks;
        break;
      case Verb::kReduce:
        y[r].assign(each, 0);
        if (static_cast<int>(r) == line.root) y[r] = sum;
        break;
      case Verb::kSpread:
        y[r] = x[static_cast<size_t>(line.root)];
        break;
      case Verb::kGather:
        for (const auto& one : x)
          y[r].insert(y[r].end(), one.begin(), one.end());
        break;
      case Verb::kScatter:
        for (size_t i = 0; i < part; ++i) y[r].push_back(sum[r * part + i]);
        break;
      case Verb::kTrade:
        for (const auto& one : x) {
          for (size_t i = 0; i < part; ++i) y[r].push_back(one[r * part + i]);
        }
        break;
    }
  }
  return y;
}

Output Built(const Line& line, const Output& x) {
  switch (line.verb) {
    case Verb::kSum:
      return AllReduce(x, Reduction::kSum);
    case Verb::kMean:
      return AllReduce(x, Reduction::kMean);
    case Verb::kGather:
      return AllGather(x);
    case Verb::kScatter:
      return ReduceScatter(x, Reduction::kSum);
    case Verb::kTrade:
      return AllToAll(x);
    case Verb::kSpread:
      return Broadcast(x, line.root);
    case Verb::kReduce:
      return Reduce(x, line.root);
  }
  return x;
}

double Allowed(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-8;
    case DType::kBFloat16:
      return 0x1p-5;
    default:
      return IsFloating(dtype) ? 1e-5 : 0;
  }
}

Tensor TensorOf(const Line& line, const std::vector<double>& values) {
  Tensor tensor(line.dtype, line.shape);
  const auto fill = [&]<typename T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      tensor.data<T>()[i] = T(static_cast<float>(values[i]));
    }
  };
  switch (line.dtype) {
    case DType::kFloat64:
      fill(double{});
      break;
    case DType::kFloat16:
      fill(Half());
      break;
    case DType::kBFloat16:
      fill(BFloat16());
      break;
    case DType::kInt32:
      fill(int32_t{});
      break;
    case DType::kInt64:
      fill(int64_t{});
      break;
    case DType::kUInt8:
      fill(uint8_t{});
      break;
    case DType::kBool:
      fill(bool{});
      break;
    default:
      fill(float{});
  }
  return tensor;
}

constexpr int kRuns = 4;

// By line, as loops make it.
std::vector<Values> Wanted(const Program& program, int run) {
  std::vector<Values> made;
  for (size_t l = 0; l < program.lines.size(); ++l) {
    const Line& line = program.lines[l];
    Values x(static_cast<size_t>(program.ranks));
    for (int rank = 0; rank < program.ranks; ++rank) {
      auto& mine = x[static_cast<size_t>(rank)];
      for (int64_t i = 0; i < line.shape.elements(); ++i) {
        mine.push_back(ValueOf(line, l, run, rank, i));
      }
    }
    made.push_back(Applied(line, line.chain ? made.back() : x, program.ranks));
  }
  return made;
}

void RunProgram(const Program& program, int rank,
                std::shared_ptr<Collective> group) {
  Graph graph;
  std::vector<Output> inputs, results;
  for (const Line& line : program.lines) {
    const Output x = line.chain
                         ? results.back()
                         : graph.Placeholder("x", line.dtype, line.shape);
    if (!line.chain) inputs.push_back(x);
    results.push_back(Built(line, x));
  }
  SessionOptions options;
  options.devices = {fmt::format("/gpu:{}", rank)};
  options.collective = std::move(group);
  Session session(graph, options);
  for (int run = 0; run < kRuns; ++run) {
    CAPTURE(run);
    std::vector<Feed> feeds;
    size_t fed = 0;
    for (size_t l = 0; l < program.lines.size(); ++l) {
      const Line& line = program.lines[l];
      if (line.chain) continue;
      std::vector<double> values;
      for (int64_t i = 0; i < line.shape.elements(); ++i) {
        values.push_back(ValueOf(line, l, run, rank, i));
      }
      feeds.push_back({inputs[fed++], TensorOf(line, values)});
    }
    const std::vector<Tensor> got = session.Run(feeds, results);
    const std::vector<Values> wanted = Wanted(program, run);
    for (size_t l = 0; l < got.size(); ++l) {
      CAPTURE(l);
      const auto& values = wanted[l][static_cast<size_t>(rank)];
      REQUIRE(got[l].elements() == static_cast<int64_t>(values.size()));
      const double allowed = Allowed(program.lines[l].dtype);
      double apart = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double of_gpu = got[l].At(static_cast<int64_t>(i));
        apart = std::max(apart, std::abs(of_gpu - values[i]) -
                                    allowed * std::abs(values[i]));
      }
      CHECK(apart <= 0);
    }
  }
}

TEST_CASE("what GPUs exchange through NCCL is what loops make") {
  if (OnRealGpu()) return;
  std::mt19937 random(41);
  const auto before = NcclExchanges();
  for (int i = 0; i < 40; ++i) {
    CAPTURE(i);
    const Program program = RandomProgram(random);
    SetNcclDelays(i % 2 == 0 ? 0 : 1 + i);
    const bool beside = i % 3 != 0;
    OnEachGpu(
        program.ranks,
        [&](int rank, std::shared_ptr<NcclGroup> group) {
          RunProgram(program, rank, std::move(group));
        },
        [&](int) { return NcclGroup::Options{.beside = beside}; });
  }
  SetNcclDelays(0);
  const auto after = NcclExchanges();
  CHECK(after.replayed > before.replayed);
}

// Its memory is another's as soon as nothing on the stream reads it, and what
// is computed meanwhile takes it.
TEST_CASE("what is exchanged stays while others compute") {
  if (OnRealGpu()) return;
  constexpr int kRanks = 3;
  const Shape shape = {kRanks * 3, 257};
  OnEachGpu(kRanks, [&](int rank, std::shared_ptr<NcclGroup> group) {
    for (int v = 0; v < kVerbs; ++v) {
      CAPTURE(v);
      const Line line = {static_cast<Verb>(v), DType::kFloat32, shape, 1};
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, shape);
      const Output sent = x + x;
      Output beside = x * x;
      const Output made = Built(line, sent);
      for (int i = 0; i < 6; ++i) beside = Tanh(beside * beside - x);
      const Output sum = Sum(beside);
      SessionOptions options;
      options.devices = {fmt::format("/gpu:{}", rank)};
      options.collective = group;
      options.fuse = false;
      Session session(graph, options);
      for (int run = 0; run < 3; ++run) {
        Values all(kRanks);
        std::vector<double> mine;
        for (int other = 0; other < kRanks; ++other) {
          for (int64_t i = 0; i < shape.elements(); ++i) {
            const double value = ValueOf(line, 0, run, other, i);
            all[static_cast<size_t>(other)].push_back(2 * value);
            if (other == rank) mine.push_back(value);
          }
        }
        const Tensor got = session.Run({{x, TensorOf(line, mine)}},
                                       std::vector<Output>{made, sum})[0];
        const std::vector<double> wanted =
            Applied(line, all, kRanks)[static_cast<size_t>(rank)];
        REQUIRE(got.elements() == static_cast<int64_t>(wanted.size()));
        double apart = 0;
        for (size_t i = 0; i < wanted.size(); ++i) {
          apart = std::max(
              apart, std::abs(got.At(static_cast<int64_t>(i)) - wanted[i]));
        }
        CHECK(apart < 1e-4);
      }
    }
  });
}

// One has the step for its rows before the other: what one would replay the
// other runs for the first time.
TEST_CASE("GPUs replay what all have recorded together, and nothing else") {
  if (OnRealGpu()) return;
  const auto before = NcclExchanges();
  OnEachGpu(3, [](int rank, std::shared_ptr<NcclGroup> group) {
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {kUnknown});
    const Output sum = AllReduce(Sum(x + x), Reduction::kSum);
    SessionOptions options;
    options.devices = {fmt::format("/gpu:{}", rank)};
    options.collective = group;
    Session session(graph, options);
    std::mt19937 random(7);
    for (int run = 0; run < 40; ++run) {
      double wanted = 0;
      int64_t mine = 0;
      for (int other = 0; other < 3; ++other) {
        const auto rows = static_cast<int64_t>(1 + random() % 3);
        wanted += 2.0 * static_cast<double>(rows * (run + other));
        if (other == rank) mine = rows;
      }
      Tensor fed(DType::kFloat32, {mine});
      std::fill_n(fed.data<float>(), mine, static_cast<float>(run + rank));
      CHECK(session.Run({{x, fed}}, sum).At(0) == wanted);
    }
  });
  CHECK(NcclExchanges().replayed > before.replayed);
}

Task OnDevices(const char* type, bool nccl) {
  Task task{.spec = [](int) { return PlainSpec(); }, .run = ToyRun(2)};
  task.options = [type](int rank) {
    TrainingOptions options;
    options.session.devices = {type + std::to_string(rank)};
    return options;
  };
  if (nccl) {
    task.meet = [](std::shared_ptr<dist::Group> host) {
      return OnGpus(std::move(host));
    };
  }
  return task;
}

// To rounding: GPUs and CPUs compute alike but for that.
TEST_CASE("a training through NCCL is that of a ring of CPUs") {
  if (OnRealGpu()) return;
  const Gpus gpus(kAllPeers, 2);
  const std::vector<Trained> wanted = TrainWith(2, OnDevices("/cpu:", false));
  const auto before = NcclExchanges();
  const std::vector<Trained> got = TrainWith(2, OnDevices("/gpu:", true));
  CHECK(NcclExchanges().replayed > before.replayed);
  for (const Trained& worker : got) CheckNear(worker, wanted[0], 1e-3);
  CHECK(got[0].losses == got[1].losses);
  for (const auto& [name, value] : got[0].variables) {
    CAPTURE(name);
    CHECK(value.BitEqual(got[1].variables.at(name)));
  }
}

// What NCCL cannot do in order with the rest is the host's, all of it.
TEST_CASE("a step with a group of some ranks meets on the host") {
  if (OnRealGpu()) return;
  const Gpus gpus(kAllPeers, 2);
  const dist::testing::Watchdog watchdog;
  dist::testing::Groups hosts = dist::testing::JoinAll(2);
  const auto before = NcclExchanges();
  dist::testing::InThreads(2, [&](int rank) {
    std::shared_ptr<dist::Group> host =
        std::move(hosts[static_cast<size_t>(rank)]);
    ThrowIfError(host->Split("alone", rank));
    Graph graph;
    const Output x = graph.Placeholder("x", DType::kFloat32, {2});
    const std::vector<Output> sums = {
        AllReduce(x, Reduction::kSum),
        AllReduce(x, Reduction::kSum, "alone", "alone")};
    SessionOptions options;
    options.devices = {fmt::format("/gpu:{}", rank)};
    options.collective = OnGpus(std::move(host));
    Session session(graph, options);
    const std::vector<Tensor> got =
        session.Run({{x, Tensor::Array<float>({2}, {1, 2})}}, sums);
    CHECK(got[0].At(1) == 4);
    CHECK(got[1].At(1) == 2);
  });
  CHECK(NcclExchanges().done == before.done);
}

// Also on a real GPU, through a real NCCL, which takes one rank a GPU.
TEST_CASE("one rank meets itself through NCCL, recorded, and aborts") {
  RegisterGpu();
  const DeviceGroups& nccl =
      OnRealGpu() ? *FindDeviceGroups(DeviceType::kCuda).ValueOrThrow()
                  : cuda::emulation::EmulatedNccl();
  std::shared_ptr<NcclGroup> group =
      NcclGroup::Join(dist::Group::Alone(), nccl, {}).ValueOrThrow();
  Graph graph;
  const Output x = graph.Placeholder("x", DType::kFloat32, {1000});
  const std::vector<Output> results = {
      AllReduce(x + x), AllReduce(x * x, Reduction::kSum),
      AllGather(x + x), ReduceScatter(x + x),
      AllToAll(x + x),  Broadcast(x + x, 0),
      Reduce(x + x, 0)};
  SessionOptions options;
  options.devices = {"/gpu:0"};
  options.collective = group;
  {
    Session session(graph, options);
    Tensor fed(DType::kFloat32, {1000});
    for (int run = 0; run < 4; ++run) {
      for (int64_t i = 0; i < 1000; ++i) {
        fed.data<float>()[i] = static_cast<float>(i + run);
      }
      const std::vector<Tensor> got = session.Run({{x, fed}}, results);
      for (size_t r = 0; r < got.size(); ++r) {
        for (const int64_t i : {0, 1, 999}) {
          const double v = fed.At(i);
          CHECK(got[r].At(i) == (r == 1 ? v * v : 2 * v));
        }
      }
    }
    group->Leave(Unavailable("a test wants it to end"));
    const std::string error = ErrorOf([&] {
      session.Run({{x, fed}}, results);
    });
    CHECK(Contains(error, "a test wants it to end"));
  }
  options.collective = nullptr;
  group.reset();  // does not wait for ever
}

}  // namespace
}  // namespace sluice::testing
