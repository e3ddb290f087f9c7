// What a task notes of the runs of its devices, for who has it do so.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/runtime/trace.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"
#include "tests/dist/cluster/small_cut.h"
#include "tests/dist/cluster/workers.h"
#include "tests/dist/collective/ranks.h"

namespace sluice::dist::testing {
namespace {

using nlohmann::json;

// How many instructions it has noted, all of that device and after `begin`,
// nanoseconds of the clock that all have here.
int64_t Noted(Cluster& tracer, int task, int64_t begin) {
  const json trace =
      json::parse(tracer.EndTrace(WorkerName(task)).ValueOrThrow());
  int64_t count = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") {
      CHECK(event["args"]["name"] == CpuOf(task));
      continue;
    }
    ++count;
    const double at = event["ts"], took = event["dur"];
    CHECK(at >= static_cast<double>(begin) / 1e3);
    CHECK(at + took <= static_cast<double>(SteadyNowNs()) / 1e3);
  }
  return count;
}

TEST_CASE("a task notes what runs while it is to, for whichever session") {
  for (const Transport transport : {Transport::kTcp, Transport::kShared}) {
    const Watchdog watchdog;
    const Workers workers(2, transport);
    const SmallCut small;
    const auto tracer = workers.Master(), other = workers.Master();
    Session before(small.graph, small.Options(other));
    before.Initialize();
    for (const int task : {0, 1}) {
      CAPTURE(task);
      const std::string name = WorkerName(task);
      const auto noted = [&](int runs) {
        const int64_t begin = SteadyNowNs();
        ThrowIfError(tracer->BeginTrace(name));
        for (int i = 0; i < runs; ++i) small.Run(before);
        return Noted(*tracer, task, begin);
      };
      small.Run(before);
      const int64_t once = noted(1);
      CHECK(once > 0);
      small.Run(before);  // is not noted
      CHECK(noted(4) == 4 * once);
      CHECK(noted(0) == 0);

      const int64_t begin = SteadyNowNs();
      ThrowIfError(tracer->BeginTrace(name));
      CHECK(other->EndTrace(name).status().code() == Code::kFailedPrecondition);
      Session meanwhile(small.graph, small.Options(other));
      small.Run(meanwhile);
      small.Run(before);
      CHECK(Noted(*tracer, task, begin) == 2 * once);
      CHECK(tracer->EndTrace(name).status().code() ==
            Code::kFailedPrecondition);
    }
  }
}

TEST_CASE(
    "a trace is begun anew, by another one or where its master has gone") {
  const Watchdog watchdog;
  const Workers workers(2, Transport::kTcp);
  const SmallCut small;
  const auto other = workers.Master();
  Session session(small.graph, small.Options(other));
  session.Initialize();
  auto first = workers.Master();
  ThrowIfError(first->BeginTrace(WorkerName(0)));
  small.Run(session);
  ThrowIfError(other->BeginTrace(WorkerName(0)));
  CHECK(first->EndTrace(WorkerName(0)).status().code() ==
        Code::kFailedPrecondition);
  const int64_t begin = SteadyNowNs();
  ThrowIfError(other->BeginTrace(WorkerName(0)));
  small.Run(session);
  const int64_t once = Noted(*other, 0, begin);
  ThrowIfError(first->BeginTrace(WorkerName(0)));
  first.reset();
  const int64_t later = SteadyNowNs();
  ThrowIfError(other->BeginTrace(WorkerName(0)));
  small.Run(session);
  CHECK(Noted(*other, 0, later) == once);
}

}  // namespace
}  // namespace sluice::dist::testing
