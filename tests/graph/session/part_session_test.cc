// What a worker takes of a master, and no more.
#include "graph/session/part_session.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "graph/compile/step_part.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;

TEST_CASE("a session has 4096 steps, each of one part a device") {
  const std::string device = "/job:worker/task:0/cpu:0";
  PartSession::Options options;
  options.job = "worker";
  options.devices = {device};
  options.rendezvous = std::make_shared<LocalRendezvous>();
  const auto session = PartSession::Open(options).ValueOrThrow();
  StepPart part;
  part.device = device;
  part.incarnation = session->Describe()[0].incarnation;
  part.graph = std::make_unique<Graph>();
  part.graph->Add({"NoOp", {}, {}, "n"}).set_device(device);
  const std::string text = PrintPart(part);
  const Status two = session->Register(0, {text, text});
  CHECK(two.code() == Code::kInvalidArgument);
  CHECK(two.message() == "2 parts of a step for 1 devices");
  for (uint64_t step = 0; step < 4096; ++step) {
    REQUIRE(session->Register(step, {text}).ToString() == "ok");
  }
  CHECK(session->Register(7, {text}).code() == Code::kAlreadyExists);
  const Status more = session->Register(4096, {text});
  CHECK(more.code() == Code::kResourceExhausted);
  CHECK(Contains(more.message(), "4096 steps are registered"));
  session->Drop(7);
  CHECK(session->Register(4096, {text}).ToString() == "ok");
}

}  // namespace
}  // namespace sluice
