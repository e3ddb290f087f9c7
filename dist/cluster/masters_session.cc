#include "dist/cluster/masters_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "engine/thread_annotations.h"
#include "graph/compile/step_part.h"
#include "graph/passes/device_description.h"

namespace sluice::dist {
namespace {

constexpr std::chrono::milliseconds kAgain = std::chrono::seconds(1);

class Parts final : public RemoteParts {
 public:
  Parts(std::shared_ptr<Task> task, std::shared_ptr<std::atomic<bool>> met,
        Task::LinkPtr link, uint64_t session, uint64_t step)
      : task_(std::move(task)),
        met_(std::move(met)),
        link_(std::move(link)),
        session_(session),
        step_(step) {}
  // Not needed where the link has ended: its steps went with it.
  ~Parts() override {
    const Json head = {
        {"call", "drop"}, {"session", session_}, {"step", step_}};
    (void)task_->Call(link_, {head.Text(), {}}).ok();
  }

  void Start(const RunOrder& order, RunEnd& end) override {
    const OrderBody body = {session_, order.step, LeftUntil(order.deadline),
                            order.replica};
    task_->Order(link_, order.key, step_, body, end);
  }
  void Release(const RunKey& run, const Status& status) override {
    task_->rendezvous()->Release(run);
    // It may be that two workers have lost each other, which no link from here
    // tells of.
    if (status.code() == Code::kUnavailable ||
        status.code() == Code::kDeadlineExceeded) {
      met_->store(false);
    }
  }

 private:
  const std::shared_ptr<Task> task_;
  const std::shared_ptr<std::atomic<bool>> met_;  // the session's
  const Task::LinkPtr link_;
  const uint64_t session_, step_;
};

class MastersSession final : public ClusterSession {
 public:
  MastersSession(std::shared_ptr<Task> task, const ClusterOptions& options,
                 std::vector<FarTask> tasks, const Cluster::Request& request)
      : task_(std::move(task)),
        options_(options),
        request_(request),
        far_(std::move(tasks)) {}
  ~MastersSession() override {
    MutexLock lock(mutex_);
    for (const FarTask& far : far_) {
      task_->rendezvous()->Forget(far.incarnations);
      if (!far.alive()) continue;
      const Json head = {{"call", "close"}, {"session", far.session}};
      (void)task_->Call(far.link, {head.Text(), {}}).ok();
    }
  }

  std::shared_ptr<Rendezvous> rendezvous() override {
    return {task_, task_->rendezvous().get()};
  }

  Result<uint64_t> Connect() override {
    MutexLock lock(mutex_);
    const bool all =
        std::all_of(far_.begin(), far_.end(),
                    [](const FarTask& far) { return far.alive(); });
    if (all && met_->load()) return generation_;
    met_->store(false);
    for (FarTask& far : far_) {
      if (far.alive()) continue;
      ++generation_;
      SLUICE_RETURN_IF_ERROR(Open(far));
    }
    // What fails meanwhile is looked at the next time.
    met_->store(true);
    const Status introduced = Introduce();
    if (!introduced.ok()) met_->store(false);
    SLUICE_RETURN_IF_ERROR(introduced);
    return generation_;
  }

  std::vector<std::string> Descriptions() const override {
    MutexLock lock(mutex_);
    std::vector<std::string> all;
    for (const std::string& device : request_.devices) {
      for (const FarTask& far : far_) {
        // There are none of a task that was never reached.
        for (size_t i = 0; i < far.descriptions.size(); ++i) {
          if (far.devices[i] == device) all.push_back(far.descriptions[i]);
        }
      }
    }
    return all;
  }

  Result<std::unique_ptr<RemoteParts>> Register(
      const std::string& device,
      const std::vector<const StepPart*>& parts) override {
    SLUICE_ASSIGN_OR_RETURN(const FarTask far, Find(device));
    const uint64_t step = ++last_step_;
    Json head = {{"call", "register"},
                 {"session", far.session},
                 {"step", step},
                 {"sizes", Json::Array()}};
    Message message;
    for (const StepPart* part : parts) {
      const std::string text = PrintPart(*part);
      head["sizes"].Add(text.size());
      const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
      message.body.insert(message.body.end(), bytes.begin(), bytes.end());
    }
    message.head = head.Text();
    SLUICE_RETURN_IF_ERROR(task_->Call(far.link, message).status());
    return std::unique_ptr<RemoteParts>(
        std::make_unique<Parts>(task_, met_, far.link, far.session, step));
  }

  Result<Tensor> Read(const std::string& device,
                      const std::string& variable) override {
    SLUICE_ASSIGN_OR_RETURN(const Message value, Ask("read", device, variable));
    return TensorOf(value);
  }
  Status Write(const std::string& device, const std::string& variable,
               const Tensor& value) override {
    return Ask("write", device, variable, &value).status();
  }
  Result<bool> IsInitialized(const std::string& device,
                             const std::string& variable) override {
    SLUICE_ASSIGN_OR_RETURN(const Message said,
                            Ask("initialized", device, variable));
    SLUICE_ASSIGN_OR_RETURN(const JsonObject head,
                            JsonObject::Parse(said.head));
    return head.Bool("is");
  }
  Result<Tensor> ReadRows(const std::string& device,
                          const std::string& variable, int64_t begin,
                          int64_t count) override {
    SLUICE_ASSIGN_OR_RETURN(
        const Message rows,
        Ask("read rows", device, variable, nullptr, [&](Json& head) {
          head["begin"] = begin;
          head["count"] = count;
        }));
    return TensorOf(rows);
  }
  Status WriteRows(const std::string& device, const std::string& variable,
                   int64_t begin, const Tensor& rows) override {
    return Ask("write rows", device, variable, &rows,
               [&](Json& head) { head["begin"] = begin; })
        .status();
  }

 private:
  Result<FarTask> Find(const std::string& device) {
    SLUICE_RETURN_IF_ERROR(Connect().status());
    MutexLock lock(mutex_);
    for (const FarTask& far : far_) {
      if (far.address.name == TaskOf(device)) return far;
    }
    return NotFound(fmt::format("no task has device '{}'", device));
  }

  Result<Message> Ask(const char* call, const std::string& device,
                      const std::string& variable,
                      const Tensor* value = nullptr,
                      const std::function<void(Json&)>& more = nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const FarTask far, Find(device));
    Json head = value == nullptr ? Json() : HeadOf(*value);
    head["call"] = call;
    head["session"] = far.session;
    head["device"] = device;
    head["variable"] = variable;
    if (more) more(head);
    return task_->Call(far.link,
                       {head.Text(), value == nullptr ? std::vector<std::byte>()
                                                      : BytesOf(*value)});
  }

  Status Open(FarTask& far) REQUIRES(mutex_) {
    const auto patience = far.link == nullptr
                              ? options_.connect_timeout
                              : std::min(options_.connect_timeout, kAgain);
    SLUICE_ASSIGN_OR_RETURN(Task::LinkPtr link,
                            task_->Reach(far.address, After(patience)));
    const Json head = {{"call", "open"},
                       {"devices", far.devices},
                       {"runs", request_.concurrent_runs},
                       {"container", request_.container}};
    SLUICE_ASSIGN_OR_RETURN(const Message said,
                            task_->Call(link, {head.Text(), {}}));
    SLUICE_ASSIGN_OR_RETURN(const JsonObject answer,
                            JsonObject::Parse(said.head));
    // What it has said of itself stays until it is whole.
    FarTask opened = {far.address, far.devices, std::move(link)};
    SLUICE_ASSIGN_OR_RETURN(opened.session, answer.Unsigned("session"));
    SLUICE_ASSIGN_OR_RETURN(opened.descriptions,
                            answer.Strings("descriptions"));
    std::vector<std::string> devices;
    for (const std::string& text : opened.descriptions) {
      SLUICE_ASSIGN_OR_RETURN(const DeviceDescription device,
                              DeviceDescription::Parse(text));
      devices.push_back(device.name);
      opened.incarnations.push_back(device.incarnation);
    }
    if (devices != far.devices) {
      return DataLoss(far.address.name + " describes other devices than asked");
    }
    far = std::move(opened);
    return {};
  }

  // Each to each: first all links, then what they lead to.
  Status Introduce() REQUIRES(mutex_) {
    std::vector<std::pair<Task::LinkPtr, Json>> links, ways;
    for (size_t i = 0; i < far_.size(); ++i) {
      const FarTask& one = far_[i];
      SLUICE_RETURN_IF_ERROR(
          task_->rendezvous()->Reach(one.incarnations, one.link));
      ways.emplace_back(one.link, Way(one, "", request_.incarnations));
      for (size_t j = 0; j < far_.size(); ++j) {
        const FarTask& other = far_[j];
        if (i == j) continue;
        ways.emplace_back(one.link,
                          Way(one, other.address.name, other.incarnations));
        if (j > i) continue;
        links.emplace_back(one.link, Json{{"call", "connect"},
                                          {"task", other.address.name},
                                          {"host", other.address.host},
                                          {"port", other.address.port}});
      }
    }
    SLUICE_RETURN_IF_ERROR(CallAll(links));
    return CallAll(ways);
  }
  static Json Way(const FarTask& from, const std::string& task,
                  const std::vector<uint64_t>& incarnations) {
    return {{"call", "reach"},
            {"session", from.session},
            {"task", task},
            {"incarnations", WordsOf(incarnations)}};
  }
  // All at once. The first error.
  Status CallAll(const std::vector<std::pair<Task::LinkPtr, Json>>& calls) {
    std::vector<uint64_t> numbers;
    for (const auto& [link, head] : calls) {
      numbers.push_back(task_->StartCall(link, {head.Text(), {}}));
    }
    Status first;
    for (size_t i = 0; i < calls.size(); ++i) {
      const Status status =
          task_->WaitCall(calls[i].first, numbers[i]).status();
      if (first.ok()) first = status;
    }
    return first;
  }

  const std::shared_ptr<Task> task_;
  const ClusterOptions options_;
  const Cluster::Request request_;
  std::atomic<uint64_t> last_step_{0};
  mutable Mutex mutex_;
  std::vector<FarTask> far_ GUARDED_BY(mutex_);
  // Whether all tasks know the ways to each other.
  const std::shared_ptr<std::atomic<bool>> met_ =
      std::make_shared<std::atomic<bool>>(false);
  uint64_t generation_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<ClusterSession> MakeMastersSession(
    std::shared_ptr<Task> task, const ClusterOptions& options,
    std::vector<FarTask> tasks, const Cluster::Request& request) {
  return std::make_unique<MastersSession>(std::move(task), options,
                                          std::move(tasks), request);
}

}  // namespace sluice::dist
