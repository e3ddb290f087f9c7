// Links whose threads cannot be begun: nothing of them stays.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "dist/cluster/task.h"
#include "tests/dist/cluster/workers.h"
#include "tests/support/scarce_threads.h"
#include "tests/support/watchdog.h"

namespace sluice::dist::testing {
namespace {

using sluice::testing::kThreadsRunOut;
using sluice::testing::threads_left;
using sluice::testing::Watchdog;

TEST_CASE("a link without its threads is an error, and the next one is whole") {
  if (!kThreadsRunOut) return;
  const Workers workers(1, Transport::kTcp);
  const ClusterTask& worker = workers.addresses()[0];
  for (int threads = 0; threads < 2; ++threads) {  // of two
    CAPTURE(threads);
    const Watchdog watchdog;
    Task task(OptionsOf("one", Transport::kTcp), nullptr, nullptr);
    const auto reach = [&] {
      return task.Reach(worker, After(std::chrono::seconds(5))).status();
    };
    threads_left = threads;
    const Status none = reach();
    const int left = threads_left;
    threads_left = -1;
    CHECK(left == 0);
    CHECK(none.code() == Code::kResourceExhausted);
    CHECK(none.message().starts_with(worker.name + ": no threads for a link"));
    CHECK((task.Find(worker.name) == nullptr));
    CHECK(task.Lost().ToString() == "ok");
    CHECK(reach().ToString() == "ok");
    CHECK(task.AskLost().ToString() == "ok");
  }
}

}  // namespace
}  // namespace sluice::dist::testing
