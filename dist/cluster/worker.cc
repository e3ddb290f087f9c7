#include "dist/cluster/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "dist/cluster/task.h"
#include "dist/net/local.h"
#include "engine/caught.h"
#include "engine/device.h"
#include "engine/runtime/trace.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/session/part_session.h"

namespace sluice::dist {
namespace {

constexpr std::chrono::milliseconds kReach = std::chrono::seconds(10);
// Sessions of one master, and of all: a training on parameter servers has up to
// two, and of workers there are up to 4096.
constexpr size_t kMostOfMaster = 256, kMostSessions = 8192;
constexpr int64_t kMostRuns = 64;  // at a time, of one session

}  // namespace

// What masters ask for (the calls' names are in `Called`): open a session,
// connect to and reach other tasks, register and drop steps, variables, a trace
// of what all of them have run here.
class Worker::Impl final : public Task::Service {
 public:
  // `devices`, in the container, are kept for their variables.
  Impl(const WorkerOptions& options, DeviceName name, std::string container,
       std::vector<std::unique_ptr<Device>> devices,
       std::shared_ptr<const Tls> tls)
      : name_(std::move(name)),
        container_(std::move(container)),
        answer_(options.answer),
        seen_(options.seen),
        kept_(std::move(devices)),
        task_(options.task, std::move(tls), this) {
    for (const auto& device : kept_) {
      devices_.push_back(device->name().ToString());
    }
  }
  ~Impl() {
    task_.Stop();
    std::map<uint64_t, Opened> ended;  // their runs still speak to the task
    MutexLock lock(mutex_);
    ended.swap(sessions_);
  }

  Result<int> Listen(Listener listener) {
    return task_.Listen(std::move(listener));
  }
  int port_ = 0;

  Result<Message> Called(const Task::LinkPtr& from,
                         const Message& message) override {
    try {
      SLUICE_ASSIGN_OR_RETURN(const JsonObject head,
                              JsonObject::Parse(message.head));
      SLUICE_ASSIGN_OR_RETURN(const std::string call, head.String("call"));
      if (call == "open") return Open(from, head);
      if (call == "connect") return Connect(head);
      if (call == "ask") return Ask(head);
      if (call == "end earlier") return EndEarlier(*from);
      if (call == "begin trace") return BeginTrace(*from);
      if (call == "end trace") return EndTrace(*from);
      SLUICE_ASSIGN_OR_RETURN(const uint64_t number, head.Unsigned("session"));
      if (call == "close") return Close(from, number);
      if (call == "reach") return Reach(from, number, head);
      SLUICE_ASSIGN_OR_RETURN(const SessionPtr session, Find(from, number));
      if (call == "register") return Register(*session, head, message);
      if (call == "drop") {
        SLUICE_ASSIGN_OR_RETURN(const uint64_t step, head.Unsigned("step"));
        session->Drop(step);
        return Message{"{}", {}};
      }
      return OfVariable(*session, call, head, message);
    } catch (...) {
      return CaughtStatus();
    }
  }

  void Ordered(const Task::LinkPtr& from, const RunKey& run, uint64_t step,
               const OrderBody& order) override {
    const Result<SessionPtr> session = Find(from, order.session);
    Status started = session.status();
    if (started.ok()) {
      auto end = std::make_unique<Answer>(task_, from, run);
      const RunOrder ordered = {run, order.step, order.replica,
                                DeadlineIn(order.within)};
      started = (*session)->Start(step, ordered, *end);
      if (started.ok()) (void)end.release();  // answers, then goes
    }
    if (!started.ok()) task_.SayRan(*from, run, started);
  }

  void Aborted(const RunKey& run, const Status& status) override {
    std::vector<SessionPtr> sessions;
    {
      MutexLock lock(mutex_);
      for (const auto& [number, open] : sessions_) {
        sessions.push_back(open.session);
      }
    }
    for (const SessionPtr& session : sessions) session->Stop(run, status);
  }

  void Came(const Link& link) override {
    if (seen_) seen_(link.peer(), {});
  }

  void Gone(const Task::LinkPtr& link) override {
    // It may have come anew before it was seen to be gone.
    const bool there = task_.Find(link->peer()) != nullptr;
    // Before all that takes a while: who goes because of it is seen later.
    if (seen_ && !there) seen_(link->peer(), link->status());
    DropTrace(*link);
    EndSessions(
        [&](const auto& entry) { return entry.second.master == link.get(); });
  }

 private:
  using SessionPtr = std::shared_ptr<PartSession>;
  struct Opened {
    const Link* master;
    std::string name;  // the master's
    SessionPtr session;
    std::set<uint64_t> ways;  // to the incarnations of others' devices
  };
  // Tells the master of the end of a run, and is gone.
  class Answer final : public RunEnd {
   public:
    Answer(Task& task, Task::LinkPtr to, const RunKey& run)
        : task_(task), to_(std::move(to)), run_(run) {}
    void Ended(const Status& status) override {
      const std::unique_ptr<Answer> self(this);
      task_.SayRan(*to_, run_, status);
    }

   private:
    Task& task_;
    const Task::LinkPtr to_;
    const RunKey run_;
  };

  Result<SessionPtr> Find(const Task::LinkPtr& from, uint64_t number) {
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(const Opened* found, OpenedAs(*from, number));
    return found->session;
  }
  Result<Opened*> OpenedAs(const Link& from, uint64_t number) REQUIRES(mutex_) {
    const auto found = sessions_.find(number);
    if (found == sessions_.end() || found->second.master != &from) {
      return NotFound(fmt::format("{} has no session {}", from.peer(), number));
    }
    return &found->second;
  }

  Result<Message> Open(const Task::LinkPtr& from, const JsonObject& head) {
    PartSession::Options options;
    options.job = name_.job;
    options.task = name_.task;
    SLUICE_ASSIGN_OR_RETURN(options.devices, head.Strings("devices"));
    for (const std::string& device : options.devices) {
      if (std::find(devices_.begin(), devices_.end(), device) ==
          devices_.end()) {
        return NotFound(fmt::format("there is no device '{}'; there is {}",
                                    device, fmt::join(devices_, ", ")));
      }
    }
    SLUICE_ASSIGN_OR_RETURN(const int64_t runs, head.Int("runs"));
    if (runs < 1 || runs > kMostRuns) {
      return InvalidArgument(
          fmt::format("{} runs at a time: at most {}", runs, kMostRuns));
    }
    options.concurrent_runs = static_cast<int>(runs);
    SLUICE_ASSIGN_OR_RETURN(const std::string container,
                            head.String("container"));
    options.container =
        container.empty() ? container_ : container_ + " " + container;
    options.rendezvous = task_.rendezvous();
    SLUICE_ASSIGN_OR_RETURN(SessionPtr session, PartSession::Open(options));
    Json answer;
    answer["descriptions"] = Json::Array();
    for (const DeviceDescription& device : session->Describe()) {
      answer["descriptions"].Add(device.ToText());
    }
    MutexLock lock(mutex_);
    SLUICE_RETURN_IF_ERROR(CheckRoom(*from));
    answer["session"] = ++last_session_;
    if (tracer_ != nullptr) session->SetObserver(&trace_);
    sessions_[last_session_] = {
        from.get(), from->peer(), std::move(session), {}};
    return Message{answer.Text(), {}};
  }

  // For one session more.
  Status CheckRoom(const Link& master) const REQUIRES(mutex_) {
    const auto own = static_cast<size_t>(std::count_if(
        sessions_.begin(), sessions_.end(),
        [&](const auto& entry) { return entry.second.master == &master; }));
    if (own < kMostOfMaster && sessions_.size() < kMostSessions) return {};
    return ResourceExhausted(fmt::format(
        "{} has {} sessions here, all masters {}: at most {} and {}",
        master.peer(), own, sessions_.size(), kMostOfMaster, kMostSessions));
  }

  Result<Message> Close(const Task::LinkPtr& from, uint64_t number) {
    SLUICE_RETURN_IF_ERROR(Find(from, number).status());
    EndSessions([&](const auto& entry) { return entry.first == number; });
    return Message{"{}", {}};
  }

  // Takes sessions from who would use them, and returns when nothing of them
  // is under way. Without the lock: their runs speak to the task.
  template <typename Which>
  void EndSessions(Which which) {
    std::vector<Opened> ended;
    {
      MutexLock lock(mutex_);
      for (auto entry = sessions_.begin(); entry != sessions_.end();) {
        if (!which(*entry)) {
          ++entry;
          continue;
        }
        ending_.insert(entry->second.name);
        ended.push_back(std::move(entry->second));
        entry = sessions_.erase(entry);
      }
    }
    for (Opened& one : ended) {
      // Of threads that have found it before, and are soon done.
      while (one.session.use_count() > 1) std::this_thread::yield();
      one.session.reset();
      MutexLock lock(mutex_);
      // Not what others need, such as a session that has taken its place.
      for (const auto& [number, open] : sessions_) {
        for (const uint64_t way : open.ways) one.ways.erase(way);
      }
      task_.rendezvous()->Forget({one.ways.begin(), one.ways.end()});
      ending_.erase(ending_.find(one.name));
      ended_.NotifyAll();
    }
  }

  // What the master had by links before this one: they are lost, but that may
  // not have been noticed yet, and what was ordered through them may still be
  // under way, or waiting to be read.
  Result<Message> EndEarlier(const Link& from) {
    EndSessions([&](const auto& entry) {
      return entry.second.name == from.peer() && entry.second.master != &from;
    });
    MutexLock lock(mutex_);
    while (ending_.contains(from.peer())) ended_.Wait(mutex_);
    return Message{"{}", {}};
  }

  Result<Message> BeginTrace(const Link& from) {
    MutexLock lock(mutex_);
    trace_.Clear();
    TraceFor(&from);
    return Message{"{}", {}};
  }

  Result<Message> EndTrace(const Link& from) {
    {
      MutexLock lock(mutex_);
      if (tracer_ != &from) {
        return FailedPrecondition(
            fmt::format("nothing is noted for {}", from.peer()));
      }
      TraceFor(nullptr);
    }
    // Steps begin meanwhile, since it may be long. What is still under way, or
    // who begins a trace, may change it.
    const std::string text = trace_.ToJson();
    {
      MutexLock lock(mutex_);
      if (tracer_ == nullptr) trace_.Clear();
    }
    const auto bytes = std::as_bytes(std::span(text));
    return Message{"{}", {bytes.begin(), bytes.end()}};
  }

  void DropTrace(const Link& from) {
    MutexLock lock(mutex_);
    if (tracer_ != &from) return;
    TraceFor(nullptr);
    trace_.Clear();
  }

  void TraceFor(const Link* tracer) REQUIRES(mutex_) {
    tracer_ = tracer;
    for (const auto& [number, open] : sessions_) {
      open.session->SetObserver(tracer == nullptr ? nullptr : &trace_);
    }
  }

  Result<Message> Connect(const JsonObject& head) {
    ClusterTask task;
    SLUICE_ASSIGN_OR_RETURN(task.name, head.String("task"));
    SLUICE_ASSIGN_OR_RETURN(task.host, head.String("host"));
    SLUICE_ASSIGN_OR_RETURN(const int64_t port, head.Int("port"));
    task.port = static_cast<int>(std::clamp<int64_t>(port, 0, 65536));
    SLUICE_RETURN_IF_ERROR(task_.Reach(task, After(kReach)).status());
    return Message{"{}", {}};
  }

  // The task that asks, where "task" is empty. As long as the session lives.
  Result<Message> Reach(const Task::LinkPtr& from, uint64_t number,
                        const JsonObject& head) {
    SLUICE_ASSIGN_OR_RETURN(const std::string name, head.String("task"));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            head.Strings("incarnations"));
    const Task::LinkPtr link = name.empty() ? from : task_.Find(name);
    if (link == nullptr) {
      return Unavailable(
          fmt::format("no way from {} to {}", task_.name(), name));
    }
    SLUICE_ASSIGN_OR_RETURN(const std::vector<uint64_t> incarnations,
                            NumbersOf(texts));
    MutexLock lock(mutex_);
    SLUICE_ASSIGN_OR_RETURN(Opened * session, OpenedAs(*from, number));
    SLUICE_RETURN_IF_ERROR(task_.rendezvous()->Reach(incarnations, link));
    session->ways.insert(incarnations.begin(), incarnations.end());
    return Message{"{}", {}};
  }

  Result<Message> Ask(const JsonObject& head) const {
    if (!answer_) {
      return Unimplemented(task_.name() + " answers no questions");
    }
    SLUICE_ASSIGN_OR_RETURN(const std::string text, head.String("text"));
    SLUICE_ASSIGN_OR_RETURN(const std::string said, answer_(text));
    return Message{Json{{"text", said}}.Text(), {}};
  }

  static Result<Message> Register(PartSession& session, const JsonObject& head,
                                  const Message& message) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t step, head.Unsigned("step"));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                            head.Ints("sizes"));
    std::vector<std::string> parts;
    std::string_view left(reinterpret_cast<const char*>(message.body.data()),
                          message.body.size());
    for (const int64_t size : sizes) {
      if (size < 0 || static_cast<uint64_t>(size) > left.size()) {
        return DataLoss("a part is longer than its message");
      }
      parts.emplace_back(left.substr(0, static_cast<size_t>(size)));
      left.remove_prefix(static_cast<size_t>(size));
    }
    SLUICE_RETURN_IF_ERROR(session.Register(step, parts));
    return Message{"{}", {}};
  }

  static Result<Message> OfVariable(PartSession& session,
                                    const std::string& call,
                                    const JsonObject& head,
                                    const Message& message) {
    SLUICE_ASSIGN_OR_RETURN(const std::string device, head.String("device"));
    SLUICE_ASSIGN_OR_RETURN(const std::string name, head.String("variable"));
    if (call == "read") {
      SLUICE_ASSIGN_OR_RETURN(const Tensor value, session.Read(device, name));
      return MessageOf(value);
    }
    if (call == "initialized") {
      SLUICE_ASSIGN_OR_RETURN(const bool is,
                              session.IsInitialized(device, name));
      return Message{is ? R"({"is": true})" : R"({"is": false})", {}};
    }
    if (call == "write") {
      SLUICE_ASSIGN_OR_RETURN(const Tensor value, TensorOf(message));
      SLUICE_RETURN_IF_ERROR(session.Write(device, name, value));
      return Message{"{}", {}};
    }
    if (call == "read rows") {
      SLUICE_ASSIGN_OR_RETURN(const int64_t begin, head.Int("begin"));
      SLUICE_ASSIGN_OR_RETURN(const int64_t count, head.Int("count"));
      SLUICE_ASSIGN_OR_RETURN(const Tensor rows,
                              session.ReadRows(device, name, begin, count));
      return MessageOf(rows);
    }
    if (call == "write rows") {
      SLUICE_ASSIGN_OR_RETURN(const int64_t begin, head.Int("begin"));
      SLUICE_ASSIGN_OR_RETURN(const Tensor rows, TensorOf(message));
      SLUICE_RETURN_IF_ERROR(session.WriteRows(device, name, begin, rows));
      return Message{"{}", {}};
    }
    return Unimplemented(fmt::format("there is no call '{}'", call));
  }

  const DeviceName name_;
  const std::string container_;  // of this worker and no other
  const std::function<Result<std::string>(const std::string&)> answer_;
  const std::function<void(const std::string&, const Status&)> seen_;
  const std::vector<std::unique_ptr<Device>> kept_;
  std::vector<std::string> devices_;
  ChromeTrace trace_;  // of all sessions, which it outlives
  Mutex mutex_;
  const Link* tracer_ GUARDED_BY(mutex_) = nullptr;  // for whom there is one
  uint64_t last_session_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Opened> sessions_ GUARDED_BY(mutex_);
  CondVar ended_;
  std::multiset<std::string> ending_ GUARDED_BY(mutex_);  // masters' names
  Task task_;  // its links' threads use the above
};

// The devices of a worker, which masters' sessions can be given.
static Result<std::vector<std::unique_ptr<Device>>> OpenDevices(
    const WorkerOptions& options, const DeviceName& own,
    const std::string& container) {
  std::vector<std::unique_ptr<Device>> devices;
  if (options.devices.empty()) {
    return InvalidArgument(options.task.name + " has no device");
  }
  for (const std::string& text : options.devices) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceName name,
                            ParseDeviceName(options.task.name + text));
    SLUICE_ASSIGN_OR_RETURN(
        std::unique_ptr<Device> device,
        Device::Open(
            name, {.container = container, .job = own.job, .task = own.task}));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  Result<Listener> listener =
      options.listen_fd >= 0 ? Result<Listener>(Listener(options.listen_fd))
                             : Listener::Open(options.host, options.port);
  SLUICE_RETURN_IF_ERROR(listener.status());
  // "/job:worker/task:1" is a device's name without its end.
  const auto name = ParseDeviceName(options.task.name + "/cpu:0");
  if (!name.ok() || name->job.empty()) {
    return InvalidArgument(
        fmt::format("'{}' is no task; tasks are named like /job:worker/task:0",
                    options.task.name));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string container, RandomWord());
  SLUICE_ASSIGN_OR_RETURN(auto devices, OpenDevices(options, *name, container));
  SLUICE_ASSIGN_OR_RETURN(auto tls, Task::TlsOf(options.task));
  auto impl = std::make_unique<Impl>(options, *name, container,
                                     std::move(devices), std::move(tls));
  SLUICE_ASSIGN_OR_RETURN(impl->port_, impl->Listen(*std::move(listener)));
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;
int Worker::port() const {
  return impl_->port_;
}

}  // namespace sluice::dist
