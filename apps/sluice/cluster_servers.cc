#include "apps/sluice/cluster_servers.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "apps/say_line.h"
#include "apps/sluice/median.h"
#include "apps/sluice/seconds_of.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/builder.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"
#include "models/cli/ending_signals.h"

namespace sluice::tool {
namespace {

// Of servers that no launcher ends: for a rank to come.
constexpr std::chrono::seconds kPatience(60);

dist::TaskOptions OptionsOfTask() {
  dist::TaskOptions options;
  options.note = [](std::string_view line) {
    SayLine(fmt::format("sluice: {}", line));
  };
  return options;
}

// What a rank has found of a server.
struct OfServer {
  double latency = 0;          // seconds, one way
  double there = 0, back = 0;  // bytes per second to the server and from it
};

OfServer MeasureServer(const dist::ServersOfJob& job, size_t server) {
  constexpr int64_t kLarge = 4 << 20;  // bytes
  OfServer measured;
  const std::string name = dist::ServerName(static_cast<int>(server));
  std::vector<double> seconds;
  for (int i = 0; i < 201; ++i) {
    seconds.push_back(
        SecondsOf([&] { (void)job.cluster->Ask(name, "").ValueOrThrow(); }));
  }
  measured.latency = Median(std::move(seconds)) / 2;

  const Shape shape = {kLarge / int64_t{sizeof(float)}};
  Graph graph;
  const Output sent = graph.Placeholder("sent", DType::kFloat32, shape);
  Output kept;
  Operation write;
  {
    const DeviceScope there(graph, job.devices[server]);
    kept = graph.Variable("measured", Zeros(shape));
    write = Assign(kept, sent);
  }
  SessionOptions options;
  options.devices = {"/cpu:0", job.devices[server]};
  options.cluster = job.cluster;
  Session session(graph, options);
  const auto rate = [](PreparedStep step, const std::vector<Tensor>& feeds) {
    std::vector<Tensor> fetches = step.MakeFetches();
    step.Run(feeds, fetches);  // until all is at hand
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) {
      times.push_back(SecondsOf([&] { step.Run(feeds, fetches); }));
    }
    return kLarge / Median(std::move(times));
  };
  measured.there = rate(session.Prepare({{sent, shape}}, {}, {write}),
                        {Tensor::Full(DType::kFloat32, shape, 1)});
  measured.back = rate(session.Prepare({}, {kept}), {});
  return measured;
}

}  // namespace

void ServeDoctor(const dist::LaunchInfo& info) {
  HoldEndingSignals();
  const auto tls = TlsOf(info);
  const auto answer = [&](const std::string& question) -> Result<std::string> {
    if (question.empty()) return std::string();  // it is timed
    SLUICE_ASSIGN_OR_RETURN(const JsonObject asked,
                            JsonObject::Parse(question));
    SLUICE_ASSIGN_OR_RETURN(const int64_t first, asked.Int("clock"));
    return OwnFacts({{"server", info.server}}, tls.get(),
                    std::time(nullptr) - first)
        .LenientText();
  };
  const auto server =
      dist::JobServer::Start(info, OptionsOfTask(), DeviceType::kCpu, kPatience,
                             answer)
          .ValueOrThrow();
  ThrowIfError(server->Serve(EndingSignalCame));
}

Result<Servers> ReachServers(const dist::LaunchInfo& info, int64_t ahead) {
  Servers servers;
  if (info.servers.empty()) return servers;
  dist::ClusterOptions options;
  options.task = OptionsOfTask();
  SLUICE_ASSIGN_OR_RETURN(servers.job,
                          dist::ReachServers(info, options, DeviceType::kCpu));
  for (size_t i = 0; i < info.servers.size(); ++i) {
    // Connecting takes its time, which is none of the clocks'.
    const std::string name = dist::ServerName(static_cast<int>(i));
    SLUICE_RETURN_IF_ERROR(servers.job.cluster->Ask(name, "").status());
    const Json question = {{"clock", std::time(nullptr) - ahead}};
    SLUICE_ASSIGN_OR_RETURN(const std::string said,
                            servers.job.cluster->Ask(name, question.Text()));
    servers.facts.push_back(ReadFacts(said));
  }
  return servers;
}

std::vector<PairRow> MeasureServers(
    const Workers& workers, const Servers& servers,
    const std::vector<ProcessFacts>& processes) {
  std::vector<PairRow> rows;
  for (size_t i = 0; i < servers.facts.size(); ++i) {
    OfServer mine;
    for (int rank = 0; rank < workers.size(); ++rank) {
      if (rank == workers.rank()) mine = MeasureServer(servers.job, i);
      workers.Barrier("server");
    }
    const std::vector<OfServer> all = workers.GatherEach("server", mine);
    for (int rank = 0; rank < workers.size(); ++rank) {
      const OfServer& found = all[static_cast<size_t>(rank)];
      const std::string& host = processes[static_cast<size_t>(rank)].host;
      rows.push_back({.pair = {rank, workers.size() + static_cast<int>(i)},
                      .one_host = host == servers.facts[i].host,
                      .latency = found.latency,
                      .there = found.there,
                      .back = found.back,
                      .served = true});
    }
  }
  return rows;
}

}  // namespace sluice::tool
