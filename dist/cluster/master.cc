#include "dist/cluster/master.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "dist/net/local.h"
#include "engine/json_object.h"
#include "graph/passes/device_description.h"

namespace sluice::dist {
namespace {

using Json = nlohmann::json;
constexpr std::chrono::milliseconds kAgain = std::chrono::seconds(1);

std::string TaskOf(const std::string& device) {
  return device.substr(0, device.rfind('/'));
}

std::vector<std::string> Words(const std::vector<uint64_t>& numbers) {
  std::vector<std::string> words;
  for (const uint64_t number : numbers) words.push_back(std::to_string(number));
  return words;
}

// A session's other end on one task.
struct Far {
  TaskAddress address;
  std::vector<std::string> devices;
  Task::LinkPtr link;  // null: never connected
  uint64_t session = 0;
  std::vector<std::string> descriptions;
  std::vector<uint64_t> incarnations;

  bool alive() const { return link != nullptr && link->status().ok(); }
};

class Parts final : public RemoteParts {
 public:
  Parts(std::shared_ptr<Task> task, Task::LinkPtr link, uint64_t session,
        uint64_t step)
      : task_(std::move(task)),
        link_(std::move(link)),
        session_(session),
        step_(step) {}
  // Not needed where the link has ended: its steps went with it.
  ~Parts() override {
    const Json head = {
        {"call", "drop"}, {"session", session_}, {"step", step_}};
    (void)task_->Call(link_, {head.dump(), {}}).ok();
  }

  void Start(const RunOrder& order, RunEnd& end) override {
    const OrderBody body = {session_, order.step, LeftUntil(order.deadline),
                            order.replica};
    task_->Order(link_, order.key, step_, body, end);
  }
  void Release(const RunKey& run) override {
    task_->rendezvous()->Release(run);
  }

 private:
  const std::shared_ptr<Task> task_;
  const Task::LinkPtr link_;
  const uint64_t session_, step_;
};

class MastersSession final : public ClusterSession {
 public:
  MastersSession(std::shared_ptr<Task> task, const ClusterOptions& options,
                 std::vector<Far> tasks, const Cluster::Request& request)
      : task_(std::move(task)),
        options_(options),
        request_(request),
        far_(std::move(tasks)) {}
  ~MastersSession() override {
    MutexLock lock(mutex_);
    for (const Far& far : far_) {
      if (!far.alive()) continue;
      const Json head = {{"call", "close"}, {"session", far.session}};
      (void)task_->Call(far.link, {head.dump(), {}}).ok();
    }
  }

  std::shared_ptr<Rendezvous> rendezvous() override {
    return {task_, task_->rendezvous().get()};
  }

  Result<uint64_t> Connect() override {
    MutexLock lock(mutex_);
    const bool all = std::all_of(far_.begin(), far_.end(),
                                 [](const Far& far) { return far.alive(); });
    if (all && met_) return generation_;
    met_ = false;
    for (Far& far : far_) {
      if (!far.alive()) SLUICE_RETURN_IF_ERROR(Open(far));
    }
    SLUICE_RETURN_IF_ERROR(Introduce());
    met_ = true;
    return ++generation_;
  }

  std::vector<std::string> Descriptions() const override {
    MutexLock lock(mutex_);
    std::vector<std::string> all;
    for (const std::string& device : request_.devices) {
      for (const Far& far : far_) {
        for (size_t i = 0; i < far.devices.size(); ++i) {
          if (far.devices[i] == device) all.push_back(far.descriptions[i]);
        }
      }
    }
    return all;
  }

  Result<std::unique_ptr<RemoteParts>> Register(
      const std::string& device,
      const std::vector<std::string>& parts) override {
    SLUICE_ASSIGN_OR_RETURN(const Far far, Find(device));
    const uint64_t step = ++last_step_;
    Json head = {{"call", "register"},
                 {"session", far.session},
                 {"step", step},
                 {"sizes", Json::array()}};
    Message message;
    for (const std::string& part : parts) {
      head["sizes"].push_back(part.size());
      const auto bytes = std::as_bytes(std::span(part.data(), part.size()));
      message.body.insert(message.body.end(), bytes.begin(), bytes.end());
    }
    message.head = head.dump();
    SLUICE_RETURN_IF_ERROR(task_->Call(far.link, message).status());
    return std::unique_ptr<RemoteParts>(
        std::make_unique<Parts>(task_, far.link, far.session, step));
  }

  Result<Tensor> Read(const std::string& device,
                      const std::string& variable) override {
    SLUICE_ASSIGN_OR_RETURN(const Message value,
                            Ask("read", device, variable, {}));
    return TensorOf(value);
  }
  Status Write(const std::string& device, const std::string& variable,
               const Tensor& value) override {
    return Ask("write", device, variable, MessageOf(value)).status();
  }
  Result<bool> IsInitialized(const std::string& device,
                             const std::string& variable) override {
    SLUICE_ASSIGN_OR_RETURN(const Message said,
                            Ask("initialized", device, variable, {}));
    SLUICE_ASSIGN_OR_RETURN(const JsonObject head,
                            JsonObject::Parse(said.head));
    return head.Bool("is");
  }

 private:
  Result<Far> Find(const std::string& device) {
    SLUICE_RETURN_IF_ERROR(Connect().status());
    MutexLock lock(mutex_);
    for (const Far& far : far_) {
      if (far.address.name == TaskOf(device)) return far;
    }
    return NotFound(fmt::format("no task has device '{}'", device));
  }

  Result<Message> Ask(const char* call, const std::string& device,
                      const std::string& variable, Message message) {
    SLUICE_ASSIGN_OR_RETURN(const Far far, Find(device));
    Json head =
        message.head.empty() ? Json::object() : Json::parse(message.head);
    head["call"] = call;
    head["session"] = far.session;
    head["device"] = device;
    head["variable"] = variable;
    message.head = head.dump();
    return task_->Call(far.link, message);
  }

  Status Open(Far& far) REQUIRES(mutex_) {
    const auto patience = far.link == nullptr
                              ? options_.connect_timeout
                              : std::min(options_.connect_timeout, kAgain);
    SLUICE_ASSIGN_OR_RETURN(far.link,
                            task_->Reach(far.address, After(patience)));
    const Json head = {{"call", "open"},
                       {"devices", far.devices},
                       {"runs", request_.concurrent_runs},
                       {"container", request_.container}};
    SLUICE_ASSIGN_OR_RETURN(const Message said,
                            task_->Call(far.link, {head.dump(), {}}));
    SLUICE_ASSIGN_OR_RETURN(const JsonObject answer,
                            JsonObject::Parse(said.head));
    SLUICE_ASSIGN_OR_RETURN(far.session, answer.Unsigned("session"));
    SLUICE_ASSIGN_OR_RETURN(far.descriptions, answer.Strings("descriptions"));
    far.incarnations.clear();
    for (size_t i = 0; i < far.descriptions.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device,
                              DeviceDescription::Parse(far.descriptions[i]));
      if (i >= far.devices.size() || device.name != far.devices[i]) break;
      far.incarnations.push_back(device.incarnation);
    }
    if (far.incarnations.size() != far.devices.size()) {
      return DataLoss(far.address.name + " describes other devices than asked");
    }
    return {};
  }

  // Each to each: first all links, then what they lead to.
  Status Introduce() REQUIRES(mutex_) {
    for (const Far& far : far_) {
      task_->rendezvous()->Reach(far.incarnations, far.link);
      SLUICE_RETURN_IF_ERROR(Tell(far, "", request_.incarnations));
    }
    for (size_t i = 0; i < far_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const TaskAddress& other = far_[j].address;
        const Json head = {{"call", "connect"},
                           {"task", other.name},
                           {"host", other.host},
                           {"port", other.port}};
        SLUICE_RETURN_IF_ERROR(
            task_->Call(far_[i].link, {head.dump(), {}}).status());
      }
    }
    for (const Far& one : far_) {
      for (const Far& other : far_) {
        if (&one == &other) continue;
        SLUICE_RETURN_IF_ERROR(
            Tell(one, other.address.name, other.incarnations));
      }
    }
    return {};
  }
  Status Tell(const Far& far, const std::string& task,
              const std::vector<uint64_t>& incarnations) {
    const Json head = {{"call", "reach"},
                       {"task", task},
                       {"incarnations", Words(incarnations)}};
    return task_->Call(far.link, {head.dump(), {}}).status();
  }

  const std::shared_ptr<Task> task_;
  const ClusterOptions options_;
  const Cluster::Request request_;
  std::atomic<uint64_t> last_step_{0};
  mutable Mutex mutex_;
  std::vector<Far> far_ GUARDED_BY(mutex_);
  bool met_ GUARDED_BY(mutex_) = false;
  uint64_t generation_ GUARDED_BY(mutex_) = 0;
};

class MastersCluster final : public Cluster {
 public:
  MastersCluster(const ClusterOptions& options, std::vector<TaskAddress> tasks)
      : options_(options),
        tasks_(std::move(tasks)),
        task_(std::make_shared<Task>(options.task, nullptr)) {}

  Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) override {
    std::vector<Far> far;
    for (const TaskAddress& task : tasks_) {
      Far one;
      one.address = task;
      for (const std::string& device : request.devices) {
        if (TaskOf(device) == task.name) one.devices.push_back(device);
      }
      if (!one.devices.empty()) far.push_back(std::move(one));
    }
    for (const std::string& device : request.devices) {
      const bool known = std::any_of(
          far.begin(), far.end(),
          [&](const Far& one) { return one.address.name == TaskOf(device); });
      if (!known) {
        return NotFound(
            fmt::format("no task of the cluster has device '{}'", device));
      }
    }
    return std::unique_ptr<ClusterSession>(std::make_unique<MastersSession>(
        task_, options_, std::move(far), request));
  }

 private:
  const ClusterOptions options_;
  const std::vector<TaskAddress> tasks_;
  const std::shared_ptr<Task> task_;
};

}  // namespace

Result<std::shared_ptr<Cluster>> MakeCluster(const ClusterOptions& options,
                                             std::vector<TaskAddress> tasks) {
  ClusterOptions named = options;
  if (named.task.name.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string word, RandomWord());
    named.task.name = "master " + word.substr(0, 8);
  }
  return std::shared_ptr<Cluster>(
      std::make_shared<MastersCluster>(named, std::move(tasks)));
}

}  // namespace sluice::dist
