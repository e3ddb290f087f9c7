// Workers that are processes of their own: the bits of one process's devices,
// also by way of a training, and what becomes of a run whose worker is killed.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/net/authority.h"
#include "dist/net/tls.h"
#include "graph/builder.h"
#include "graph/ops/dropout.h"
#include "graph/ops/loss.h"
#include "models/nn/initializers.h"
#include "models/optim/optimizers.h"
#include "tests/dist/cluster/small_cut.h"
#include "tests/dist/cluster/worker_process.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/collective/ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/free_ports.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::Contains;
using sluice::testing::ErrorOf;
using Clock = std::chrono::steady_clock;

struct TwoWorkers {
  TwoWorkers() {
    const std::string file = folder / "token";
    std::ofstream(file) << OptionsOf("", Transport::kTcp).token << '\n';
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    secrets = {"--token-file", file};
    // Which nobody is given while a worker is away.
    const std::vector<int> ports = sluice::testing::FreePorts(2);
    for (const int task : {0, 1}) Begin(task, ports[task]);
  }
  void Begin(int task, int port) {
    workers[task] = std::make_unique<WorkerProcess>(task, port, secrets);
  }

  const sluice::testing::TemporaryFolder folder;
  std::vector<std::string> secrets;
  std::unique_ptr<WorkerProcess> workers[2];

  std::shared_ptr<Cluster> Master(Transport transport) const {
    ClusterOptions options;
    options.task = OptionsOf("", transport);
    options.connect_timeout = std::chrono::seconds(5);
    return MakeCluster(options,
                       {{WorkerName(0), "127.0.0.1", workers[0]->port()},
                        {WorkerName(1), "127.0.0.1", workers[1]->port()}})
        .ValueOrThrow();
  }
};

// Digits' sort of model, cut in two: the first layer here, the second there.
struct Cut {
  Graph graph;
  Output image, label, loss;
  Output weights[2], bias[2];
  Operation train;

  Cut(const std::string& here, const std::string& there) {
    image = graph.Placeholder("image", DType::kFloat32, {32, 784});
    label = graph.Placeholder("label", DType::kInt64, {32});
    Output hidden, logits;
    {
      const DeviceScope on(graph, here);
      weights[0] =
          graph.Variable("w0", initializers::TruncatedNormal(0.05)({784, 128}));
      bias[0] = graph.Variable("b0", Zeros({128}));
      hidden = Dropout(Relu(MatMul(image, weights[0]) + bias[0]), 0.2);
    }
    {
      const DeviceScope on(graph, there);
      weights[1] =
          graph.Variable("w1", initializers::TruncatedNormal(0.05)({128, 10}));
      bias[1] = graph.Variable("b1", Zeros({10}));
      logits = MatMul(hidden, weights[1]) + bias[1];
      loss = Mean(SparseSoftmaxCrossEntropy(logits, label));
    }
    train = optimizers::Momentum(0.1, 0.9).Minimize(loss);
  }

  std::vector<Feed> Batch(uint32_t seed) const {
    std::mt19937 random(seed);
    Tensor images(DType::kFloat32, {32, 784}), labels(DType::kInt64, {32});
    for (float& pixel : images.values<float>()) {
      pixel = static_cast<float>(random() >> 8) * 0x1p-24f;
    }
    for (int64_t& digit : labels.values<int64_t>()) {
      digit = static_cast<int64_t>(random() % 10);
    }
    return {{image, images}, {label, labels}};
  }

  std::vector<Tensor> Train(Session& session, int steps) const {
    std::vector<Tensor> values;
    session.Initialize();
    for (int step = 0; step < steps; ++step) {
      values.push_back(
          session.Run(Batch(static_cast<uint32_t>(step)), loss, {train}));
    }
    for (int i = 0; i < 2; ++i) {
      values.push_back(session.Read(weights[i]));
      values.push_back(session.Read(bias[i]));
    }
    return values;
  }
};

TEST_CASE("a training over two processes has the bits of two devices here") {
  const Watchdog watchdog;
  const Cut near("/cpu:1", "/cpu:2");
  SessionOptions local;
  local.devices = {"/cpu:0", "/cpu:1", "/cpu:2"};
  local.deterministic = true;
  Session one(near.graph, local);
  const std::vector<Tensor> wanted = near.Train(one, 30);
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    const TwoWorkers workers;
    const Cut far(WorkerName(0) + "/cpu:0", WorkerName(1) + "/cpu:0");
    SessionOptions options = local;
    options.devices = {"/cpu:0", WorkerName(0) + "/cpu:0",
                       WorkerName(1) + "/cpu:0"};
    options.cluster = workers.Master(transport);
    Session session(far.graph, options);
    const std::vector<Tensor> got = far.Train(session, 30);
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].BitEqual(wanted[i]));
    }
    CHECK(got[29].At(0) != got[0].At(0));
  }
}

TEST_CASE("sluice worker shows its certificate, and ends when it is told to") {
  if (!HasTls()) return;
  const Watchdog watchdog;
  const sluice::testing::TemporaryFolder folder;
  const Authority authority = Authority::Create("test").ValueOrThrow();
  const auto issue = [&](const char* role, int rank) {
    return authority.Issue(role, rank, std::chrono::hours(1)).ValueOrThrow();
  };
  for (int task = 0; task < 2; ++task) {
    const Credentials own = issue("worker", task);
    const std::string name = folder / ("worker-" + std::to_string(task));
    std::ofstream(folder / "ca.pem") << own.authority;
    std::ofstream(name + ".pem") << own.certificate;
    std::ofstream(name + ".key") << own.key;
    std::filesystem::permissions(name + ".key",
                                 std::filesystem::perms::owner_read);
  }
  const std::vector<std::string> secrets = {"--certificates", folder.path()};
  WorkerProcess one(0, 0, secrets), other(1, 0, secrets);
  ClusterOptions options;
  options.task = OptionsOf("", Transport::kAuto);
  options.task.token = "";
  options.task.credentials = issue("master", 0);
  const SmallCut small;
  Session session(
      small.graph,
      small.Options(
          MakeCluster(options, {{WorkerName(0), "127.0.0.1", one.port()},
                                {WorkerName(1), "127.0.0.1", other.port()}})
              .ValueOrThrow()));
  session.Initialize();
  small.Run(session);
  CHECK(session.Read(small.v).At(0) == 1);
  CHECK(one.End() == 0);
  CHECK(Contains(ErrorOf([&] { small.Run(session); }), WorkerName(0)));
}

TEST_CASE("sluice worker says in a line what it cannot do") {
  unsetenv("SLUICE_TOKEN_FILE");
  unsetenv("SLUICE_CERTIFICATES");
  const sluice::testing::TemporaryFolder folder;
  const std::string token = folder / "token";
  std::ofstream(token) << std::string(64, '7');
  std::filesystem::permissions(token, std::filesystem::perms::owner_read);
  using Words = std::vector<std::string>;
  const std::vector<std::pair<Words, std::string>> wrong = {
      {{}, "--token-file or --certificates"},
      {{"--token-file", folder / "none"}, "/none"},
      {{"--certificates", folder / "none"}, "/none/ca.pem"},
      {{"--token-file", token, "--name", "bob"}, "'bob' is no task"},
      {{"--token-file", token, "--listen", "here"}, "wanted HOST:PORT"},
      {{"--token-file", token, "--listen", "0.0.0.0:0x1F90"},
       "wanted HOST:PORT"},
      {{"--token-file", token, "--listen", "0.0.0.0:0"}, "no credentials"},
      {{"--token-file", token, "--device", "/gpu:0"}, "/gpu:0"},
      {{"--token-file", token, "--transport", "pigeons"}, "'pigeons'"}};
  for (const auto& [given, wanted] : wrong) {
    Words words = {"worker"};
    words.insert(words.end(), given.begin(), given.end());
    sluice::testing::CheckError(
        sluice::testing::RunProgram(std::string(SLUICE_BIN_DIR) + "/sluice",
                                    words),
        "sluice", 1, wanted);
  }
}

TEST_CASE("a worker that is killed or stopped anywhere is named in time") {
  int killed = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const Watchdog watchdog;
    CAPTURE(seed);
    std::mt19937 random(seed);
    TwoWorkers workers;
    const int victim = static_cast<int>(random() % 2);
    const bool stops = seed % 6 == 0;
    const Cut far(WorkerName(0) + "/cpu:0", WorkerName(1) + "/cpu:0");
    SessionOptions options;
    options.devices = {"/cpu:0", WorkerName(0) + "/cpu:0",
                       WorkerName(1) + "/cpu:0"};
    options.cluster =
        workers.Master(seed % 2 == 0 ? Transport::kTcp : Transport::kShared);
    Session session(far.graph, options);
    session.Initialize();
    session.Run(far.Batch(0), far.loss, {far.train});
    Clock::time_point when;
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      when = Clock::now();
      stops ? workers.workers[victim]->Stop() : workers.workers[victim]->Kill();
    });
    std::string error;
    while (error.empty()) {
      error = ErrorOf([&] {
        while (true) session.Run(far.Batch(1), far.loss, {far.train});
      });
    }
    const auto ended = Clock::now();
    killer.join();
    CHECK(Contains(error, WorkerName(victim)));
    CHECK(ended - when < std::chrono::seconds(20));
    // That one has been killed is seen before its silence is.
    if (!stops) CHECK(error.find("nothing from") == std::string::npos);
    ++killed;
    if (stops) continue;
    // Another in its place, at the same port.
    const int port = workers.workers[victim]->port();
    workers.Begin(victim, port);
    const Output lost = far.weights[victim];
    CHECK_FALSE(session.IsInitialized(lost));
    CHECK(session.IsInitialized(far.weights[1 - victim]));
    CHECK(Contains(
        ErrorOf([&] { session.Run(far.Batch(2), far.loss, {far.train}); }),
        "not initialised"));
    session.Initialize();
    session.Run(far.Batch(2), far.loss, {far.train});
  }
  CHECK(killed == 12);
}

}  // namespace
}  // namespace sluice::dist::testing
