// Programs whose variables are on several devices of this process or of tasks,
// the servers, beside the same on one.
#ifndef SLUICE_TESTS_DIST_SERVERS_ON_SERVERS_H_
#define SLUICE_TESTS_DIST_SERVERS_ON_SERVERS_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dist/servers/placement.h"
#include "graph/builder.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "models/nn/initializers.h"
#include "models/optim/optimizers.h"
#include "tests/dist/cluster/workers.h"

namespace sluice::dist::testing {

using Names = std::vector<std::string>;

inline constexpr char kWorker[] = "/cpu:0";

// Beside the worker.
inline Names Cpus(int count) {
  Names names;
  for (int i = 1; i <= count; ++i) names.push_back("/cpu:" + std::to_string(i));
  return names;
}

// The worker and its servers.
inline SessionOptions On(const Names& servers) {
  SessionOptions options;
  options.devices = servers;
  options.devices.insert(options.devices.begin(), kWorker);
  return options;
}

inline int64_t BytesOf(const Output& variable) {
  return static_cast<int64_t>(variable.type().bytes());
}

// Variables that are cut by rows.
inline int Spread(const Graph& graph) {
  int spread = 0;
  for (const Output& variable : graph.Variables()) {
    spread += SpreadsRows(variable.node()) ? 1 : 0;
  }
  return spread;
}

// First values of three kinds: given, computed of what is drawn, and one that
// is no row by row.
inline Initializer OtherValue(uint32_t kind, std::mt19937& random,
                              const Shape& shape, double scale) {
  switch (kind) {
    case 0: {
      Tensor value(DType::kFloat32, shape);
      for (float& x : value.values<float>()) {
        x = static_cast<float>(random() % 1000) / 500 - 1;
      }
      return CopyOf(value);
    }
    case 1:
      return {DType::kFloat32, shape, [shape, scale](Graph& graph) {
                return Tanh(RandomUniform(graph, shape, -1, 1)) * 0.5 +
                       RandomNormal(graph, Shape{shape[-1]}, 0, scale);
              }};
    default:
      return {DType::kFloat32, shape, [shape, scale](Graph& graph) {
                return CumSum(RandomUniform(graph, shape, -scale, scale), 0);
              }};
  }
}

// First values, losses, last values.
template <typename Program>
std::vector<Tensor> RunSteps(const Program& program, Session& session) {
  std::vector<Tensor> all;
  const auto add_values = [&] {
    for (const Output& variable : program.graph.Variables()) {
      all.push_back(session.Read(variable));
    }
  };
  session.Initialize();
  add_values();
  for (int step = 0; step < 4; ++step) {
    all.push_back(
        session.Run(program.Feeds(step), program.loss, {program.train}));
  }
  add_values();
  return all;
}

inline void CheckSame(const std::vector<Tensor>& got,
                      const std::vector<Tensor>& wanted) {
  REQUIRE_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].BitEqual(wanted[i]));
  }
}

// With its variables on the servers of these options a program of the seed has
// one device's bits. Returns how many variables are cut.
template <typename Program>
int CheckOneDevicesBits(uint32_t seed, const CutFrom& from,
                        const SessionOptions& options) {
  const Program local(seed);
  Session alone(local.graph);
  const std::vector<Tensor> wanted = RunSteps(local, alone);
  Program spread(seed);
  const Names servers(options.devices.begin() + 1, options.devices.end());
  ThrowIfError(PlaceOnServers(spread.graph, kWorker, servers, from));
  if (seed % 2 == 0) CountLast(spread.train, GlobalStep(spread.graph));
  Session session(spread.graph, options);
  CheckSame(RunSteps(spread, session), wanted);
  for (const Output& variable : spread.graph.Variables()) {
    CHECK(session.IsInitialized(variable));
  }
  return Spread(spread.graph);
}

// The worker, and so many tasks as its servers.
inline SessionOptions OnTasks(const Workers& workers, int count,
                              uint32_t container) {
  Names servers;
  for (int i = 0; i < count; ++i) servers.push_back(WorkerName(i) + "/cpu:0");
  SessionOptions options = On(servers);
  options.cluster = workers.Master();
  options.container = std::to_string(container);
  return options;
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_SERVERS_ON_SERVERS_H_
