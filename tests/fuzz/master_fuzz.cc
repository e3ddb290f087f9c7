// Whatever a worker answers a master, that ends with what was asked for or an
// error. In heads "$" is the session's number.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/cluster/master.h"
#include "dist/cluster/task.h"
#include "engine/thread_annotations.h"
#include "graph/session/cluster.h"
#include "tests/fuzz/calls.h"

namespace sluice::dist {
namespace {

constexpr char kName[] = "/job:worker/task:0";
constexpr char kDevice[] = "/job:worker/task:0/cpu:0";

TaskOptions Named(const std::string& name) {
  TaskOptions options;
  options.name = name;
  options.token = std::string(64, '7');
  options.peer_timeout = std::chrono::seconds(60);
  options.transport = Transport::kTcp;
  return options;
}

// Answers with one message after another, then with errors.
class Answers final : public Task::Service {
 public:
  void Are(std::vector<Message> messages) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    messages_ = std::move(messages);
    next_ = 0;
  }
  Result<Message> Called(const Task::LinkPtr&, const Message&) override
      EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (next_ == messages_.size()) return Cancelled("no more");
    return messages_[next_++];
  }
  void Ordered(const Task::LinkPtr&, const RunKey&, uint64_t,
               const OrderBody&) override {}
  void Aborted(const RunKey&, const Status&) override {}
  void Came(const Link&) override {}
  void Gone(const Task::LinkPtr&) override {}

 private:
  Mutex mutex_;
  std::vector<Message> messages_ GUARDED_BY(mutex_);
  size_t next_ GUARDED_BY(mutex_) = 0;
};

struct Tasks {
  Tasks() {
    const int port = worker.Listen(Listener::Open("127.0.0.1").ValueOrThrow())
                         .ValueOrThrow();
    ClusterOptions options;
    options.task = Named("master");
    options.connect_timeout = std::chrono::seconds(30);
    master = MakeCluster(options, {{kName, "127.0.0.1", port}}).ValueOrThrow();
  }
  Answers answers;
  Task worker{Named(kName), nullptr, &answers};
  std::shared_ptr<Cluster> master;
};

void Ask(Tasks& tasks, std::string_view text) {
  Cluster::Request request;
  request.devices = {kDevice};
  request.concurrent_runs = 1;
  auto session = tasks.master->Open(request).ValueOrThrow();
  tasks.answers.Are(fuzz::MessagesOf(text, 16, 1, 1));
  (void)session->Read(kDevice, "v").ok();
  (void)session->IsInitialized(kDevice, "v").ok();
  (void)session->ReadRows(kDevice, "v", 0, 1).ok();
  (void)session->Descriptions();
  (void)tasks.master->Ask(kName, "text").ok();
  session.reset();
  SLUICE_CHECK(tasks.master->Lost().ok());
}

}  // namespace
}  // namespace sluice::dist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::dist::Tasks& tasks = *new sluice::dist::Tasks();
  sluice::dist::Ask(tasks, {reinterpret_cast<const char*>(data), size});
  return 0;
}
