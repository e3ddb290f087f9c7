// Whatever a member of the cluster calls a worker for is answered, if with an
// error, and the link to it is sound afterwards. In heads "$" is a session of
// the caller's, in bodies the incarnation of its device.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dist/cluster/task.h"
#include "dist/cluster/worker.h"
#include "engine/text/json_object.h"
#include "graph/compile/step_part.h"
#include "graph/passes/device_description.h"
#include "tests/fuzz/calls.h"

namespace sluice::dist {
namespace {

constexpr char kOpen[] =
    R"({"call": "open", "devices": ["/job:worker/task:0/cpu:0"], "runs": 1,)"
    R"( "container": ""})";
constexpr int kMostInputs = 2000;  // of one worker, whose variables stay

TaskOptions Named(const std::string& name) {
  TaskOptions options;
  options.name = name;
  options.token = std::string(64, '7');
  options.peer_timeout = std::chrono::seconds(60);
  options.transport = Transport::kTcp;
  return options;
}

struct Cluster {
  Cluster() {
    WorkerOptions options;
    options.task = Named("/job:worker/task:0");
    options.answer = [](const std::string& text) -> Result<std::string> {
      return text;
    };
    worker = Worker::Start(options).ValueOrThrow();
    link = member
               .Reach({options.task.name, "127.0.0.1", worker->port()},
                      After(std::chrono::seconds(30)))
               .ValueOrThrow();
  }
  std::unique_ptr<Worker> worker;
  Task member{Named("member"), nullptr, nullptr};
  Task::LinkPtr link;
  int inputs = 0;
};

// What takes long, or much memory, with every right.
bool Asks(const Message& message) {
  const auto head = JsonObject::Parse(message.head);
  if (!head.ok()) return true;
  const auto call = head->String("call");
  if (!call.ok()) return true;
  if (*call == "connect") return false;
  if (*call != "register") return true;
  std::string_view text(reinterpret_cast<const char*>(message.body.data()),
                        message.body.size());
  const auto sizes = head->Ints("sizes");
  if (!sizes.ok()) return true;
  for (const int64_t size : *sizes) {
    if (size < 0 || static_cast<uint64_t>(size) > text.size()) return true;
    const auto part = ParsePart(text.substr(0, static_cast<size_t>(size)));
    text.remove_prefix(static_cast<size_t>(size));
    if (!part.ok()) continue;
    for (const auto& node : part->graph->nodes()) {
      for (const TensorType& type : node->output_types()) {
        if (type.shape.elements() > int64_t{1} << 20) return false;
      }
    }
  }
  return true;
}

void Call(Cluster& cluster, std::string_view text) {
  const Message opened =
      cluster.member.Call(cluster.link, {kOpen, {}}).ValueOrThrow();
  const JsonObject answer = JsonObject::Parse(opened.head).ValueOrThrow();
  const uint64_t session = answer.Unsigned("session").ValueOrThrow();
  const auto device =
      DeviceDescription::Parse(answer.Strings("descriptions").ValueOrThrow()[0])
          .ValueOrThrow();
  for (const Message& message :
       fuzz::MessagesOf(text, 8, session, device.incarnation)) {
    if (Asks(message)) (void)cluster.member.Call(cluster.link, message).ok();
  }
  // Its own sessions, also those that the input has opened.
  for (uint64_t own = session; own <= session + 8; ++own) {
    const std::string close =
        fuzz::With(R"({"call": "close", "session": $})", own);
    (void)cluster.member.Call(cluster.link, {close, {}}).ok();
  }
  SLUICE_CHECK(cluster.link->status().ok());
}

}  // namespace
}  // namespace sluice::dist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::unique_ptr<sluice::dist::Cluster> cluster;
  if (cluster == nullptr || cluster->inputs++ == sluice::dist::kMostInputs) {
    cluster.reset();
    cluster = std::make_unique<sluice::dist::Cluster>();
  }
  sluice::dist::Call(*cluster, {reinterpret_cast<const char*>(data), size});
  return 0;
}
