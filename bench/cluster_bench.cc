// Times what a step over several processes costs beside what it computes: one
// that does nothing on two workers, beside one on two devices of this process;
// and one that sends a tensor from a worker to the other, beside the same on
// two devices of this process, and as many bytes through a bare socket and
// copied by one core. The sides of a row are measured in turns, and its numbers
// are medians.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dist/cluster/master.h"
#include "dist/cluster/worker.h"
#include "dist/net/authority.h"
#include "dist/net/socket.h"
#include "engine/status.h"
#include "graph/builder.h"
#include "graph/session/session.h"

namespace sluice::dist {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string transport = "auto";
  int64_t bytes = int64_t{64} << 20;
  double seconds = 3;  // a row
  bool tls = false;
  bool json = false;
};

// A process that does what it is told and ends with this one.
class Child {
 public:
  explicit Child(const std::function<void()>& run) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      run();
    } catch (const Error& error) {
      std::cerr << "cluster_bench: " << error.what() << std::endl;
    }
    _exit(1);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  const pid_t pid_;
};

std::string WorkerName(int task) {
  return fmt::format("/job:worker/task:{}", task);
}

TaskOptions OptionsOf(const Options& options, const Authority* authority,
                      const char* role, int task) {
  TaskOptions made;
  if (role == std::string("worker")) made.name = WorkerName(task);
  made.token = std::string(64, 'b');
  made.transport = ParseTransport(options.transport).ValueOrThrow();
  if (authority != nullptr) {
    made.credentials =
        authority->Issue(role, task, std::chrono::hours(1)).ValueOrThrow();
  }
  return made;
}

// Two workers, each a process.
class Workers {
 public:
  Workers(const Options& options, const Authority* authority) {
    for (int task = 0; task < 2; ++task) {
      int told[2];
      if (pipe(told) != 0) throw Error(Unavailable("no pipe"));
      children_.push_back(std::make_unique<Child>([&] {
        WorkerOptions worker;
        worker.task = OptionsOf(options, authority, "worker", task);
        const auto serving = Worker::Start(worker).ValueOrThrow();
        const int port = serving->port();
        if (write(told[1], &port, sizeof port) == sizeof port) pause();
      }));
      close(told[1]);
      int port = 0;
      if (read(told[0], &port, sizeof port) != sizeof port) {
        throw Error(Unavailable("a worker has not begun"));
      }
      close(told[0]);
      tasks_.push_back({WorkerName(task), "127.0.0.1", port});
    }
  }
  const std::vector<ClusterTask>& tasks() const { return tasks_; }

 private:
  std::vector<std::unique_ptr<Child>> children_;
  std::vector<ClusterTask> tasks_;
};

// Another process that sends so many bytes whenever it is asked.
class BareSocket {
 public:
  explicit BareSocket(int64_t bytes)
      : data_(static_cast<size_t>(bytes)),
        listener_(Listener::Open("127.0.0.1").ValueOrThrow()),
        child_([this] { Serve(); }) {
    socket_ = listener_.Accept(After(std::chrono::seconds(10))).ValueOrThrow();
    // Without the engine's ways: one call, which waits.
    fcntl(socket_.descriptor(), F_SETFL, 0);
  }
  void Run() {
    char ask = 0;
    bool good = send(socket_.descriptor(), &ask, 1, 0) == 1;
    good = good && recv(socket_.descriptor(), data_.data(), data_.size(),
                        MSG_WAITALL) == static_cast<ssize_t>(data_.size());
    if (!good) throw Error(Unavailable("the bare socket has ended"));
  }

 private:
  void Serve() {
    Socket to = Socket::Connect("127.0.0.1", listener_.port(),
                                After(std::chrono::seconds(10)))
                    .ValueOrThrow();
    fcntl(to.descriptor(), F_SETFL, 0);
    char ask = 0;
    while (recv(to.descriptor(), &ask, 1, 0) == 1) {
      if (send(to.descriptor(), data_.data(), data_.size(), 0) < 0) return;
    }
  }

  std::vector<char> data_;
  Listener listener_;
  const Child child_;
  Socket socket_;
};

// Where the parts of a step are.
struct Places {
  std::string one, other;
  std::shared_ptr<Cluster> cluster;  // null: here

  SessionOptions Session() const {
    SessionOptions options;
    options.devices = {"/cpu:0", one, other};
    options.cluster = cluster;
    return options;
  }
};

// A step that does nothing, on both.
class EmptyStep {
 public:
  explicit EmptyStep(const Places& places) {
    std::vector<Operation> both;
    for (const std::string& place : {places.one, places.other}) {
      const DeviceScope there(graph_, place);
      both.push_back(NoOp(graph_, {}));
    }
    session_.emplace(graph_, places.Session());
    step_.emplace(session_->Prepare({}, {}, both));
  }
  void Run() { step_->Run({}, {}); }

 private:
  Graph graph_;
  std::optional<Session> session_;
  std::optional<PreparedStep> step_;
};

// A variable from the one to the other, which looks at its first element.
class SendingStep {
 public:
  SendingStep(const Places& places, int64_t bytes) {
    Output sent;
    Operation looks;
    {
      const DeviceScope there(graph_, places.one);
      sent = graph_.Variable("sent", Zeros({bytes / 4}));
    }
    {
      const DeviceScope there(graph_, places.other);
      const Output first = graph_.Variable("first", Zeros({1}));
      looks = Assign(first, Slice(sent, {0}, {1}));
    }
    session_.emplace(graph_, places.Session());
    session_->Initialize();
    step_.emplace(session_->Prepare({}, {}, {looks}));
  }
  void Run() { step_->Run({}, {}); }

 private:
  Graph graph_;
  std::optional<Session> session_;
  std::optional<PreparedStep> step_;
};

double Microseconds(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count() * 1e6;
}

double Median(std::vector<double> times) {
  const auto middle =
      times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The medians of each, in turns for so long, at least five of each; `few` at a
// time.
std::vector<double> InTurns(double seconds, int few,
                            const std::vector<std::function<void()>>& sides,
                            size_t* count) {
  std::vector<std::vector<double>> times(sides.size());
  for (int i = 0; i < few; ++i) {
    for (const auto& side : sides) side();
  }
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times[0].size() < 5 || Clock::now() < end) {
    for (size_t side = 0; side < sides.size(); ++side) {
      for (int i = 0; i < few; ++i) {
        times[side].push_back(Microseconds(sides[side]));
      }
    }
  }
  *count = times[0].size();
  std::vector<double> medians;
  for (const auto& of_side : times) medians.push_back(Median(of_side));
  return medians;
}

void Print(const Json& row, bool json) {
  if (json) {
    std::cout << row.dump() << std::endl;
    return;
  }
  for (const auto& [key, value] : row.items()) {
    std::cout << fmt::format("{} {}  ", key,
                             value.is_number_float()
                                 ? fmt::format("{:.2f}", value.get<double>())
                             : value.is_string() ? value.get<std::string>()
                                                 : value.dump());
  }
  std::cout << std::endl;
}

void Main(const Options& options) {
  std::optional<Authority> authority;
  if (options.tls) authority.emplace(Authority::Create("bench").ValueOrThrow());
  const Authority* const issues = authority ? &*authority : nullptr;
  // Processes before threads.
  const Workers workers(options, issues);
  BareSocket bare(options.bytes);
  ClusterOptions mine;
  mine.task = OptionsOf(options, issues, "master", 0);
  const Places far = {WorkerName(0) + "/cpu:0", WorkerName(1) + "/cpu:0",
                      MakeCluster(mine, workers.tasks()).ValueOrThrow()};
  const Places near = {"/cpu:1", "/cpu:2", nullptr};

  size_t count = 0;
  {
    EmptyStep ours(far), theirs(near);
    const std::vector<double> us =
        InTurns(options.seconds, 50,
                {[&] { ours.Run(); }, [&] { theirs.Run(); }}, &count);
    Print({{"what", "empty step"},
           {"transport", options.transport},
           {"tls", options.tls},
           {"runs", count},
           {"two_workers_us", us[0]},
           {"two_devices_us", us[1]},
           {"beyond_us", us[0] - us[1]}},
          options.json);
  }
  // Either reads the variable, which is a copy, and looks at it.
  SendingStep ours(far, options.bytes), theirs(near, options.bytes);
  const std::vector<char> from(static_cast<size_t>(options.bytes), 1);
  std::vector<char> to(from.size());
  const std::vector<double> us =
      InTurns(options.seconds, 1,
              {[&] { ours.Run(); }, [&] { theirs.Run(); }, [&] { bare.Run(); },
               [&] { std::memcpy(to.data(), from.data(), from.size()); }},
              &count);
  const auto gb_s = [&](double microseconds) {
    return static_cast<double>(options.bytes) / microseconds / 1e3;
  };
  const double sent = us[0] - us[1];
  Print({{"what", "send"},
         {"transport", options.transport},
         {"tls", options.tls},
         {"runs", count},
         {"bytes", options.bytes},
         {"step_us", us[0]},
         {"beyond_us", sent},
         {"gb_s", gb_s(sent)},
         {"bare_socket_gb_s", gb_s(us[2])},
         {"of_bare_socket", us[2] / sent},
         {"copy_gb_s", gb_s(us[3])},
         {"of_copy", us[3] / sent}},
        options.json);
}

}  // namespace
}  // namespace sluice::dist

int main(int argc, char** argv) {
  sluice::dist::Options options;
  CLI::App app("Times steps over two workers, processes of this host");
  app.option_defaults()->always_capture_default();
  app.add_option("--transport", options.transport,
                 "Between tasks: auto, tcp or shared memory");
  app.add_option("--bytes", options.bytes, "That are sent")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 34));
  app.add_option("--seconds", options.seconds, "About, a row")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_flag("--tls", options.tls, "With certificates");
  app.add_flag("--json", options.json, "One object a row");
  CLI11_PARSE(app, argc, argv);
  try {
    sluice::dist::Main(options);
    return 0;
  } catch (const sluice::Error& error) {
    std::cerr << "cluster_bench: " << error.what() << std::endl;
    return 1;
  }
}
