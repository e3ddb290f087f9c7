#include "dist/cluster/master.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dist/cluster/masters_session.h"
#include "dist/cluster/task.h"
#include "dist/net/local.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/session/cluster.h"

namespace sluice::dist {
namespace {

class MastersCluster final : public Cluster {
 public:
  MastersCluster(const ClusterOptions& options, std::vector<ClusterTask> tasks,
                 std::shared_ptr<const Tls> tls)
      : options_(options),
        tasks_(std::move(tasks)),
        task_(std::make_shared<Task>(options.task, std::move(tls), nullptr)) {}

  Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) override {
    std::vector<FarTask> far;
    for (const ClusterTask& task : tasks_) {
      FarTask one;
      one.address = task;
      for (const std::string& device : request.devices) {
        if (TaskOf(device) == task.name) one.devices.push_back(device);
      }
      if (!one.devices.empty()) far.push_back(std::move(one));
    }
    for (const std::string& device : request.devices) {
      const bool known =
          std::any_of(far.begin(), far.end(), [&](const FarTask& one) {
            return one.address.name == TaskOf(device);
          });
      if (!known) {
        return NotFound(
            fmt::format("no task of the cluster has device '{}'", device));
      }
    }
    return MakeMastersSession(task_, options_, std::move(far), request);
  }

  Result<std::string> Ask(const std::string& name,
                          const std::string& text) override {
    SLUICE_ASSIGN_OR_RETURN(const Message said,
                            Call(name, {{"call", "ask"}, {"text", text}}));
    SLUICE_ASSIGN_OR_RETURN(const JsonObject answer,
                            JsonObject::Parse(said.head));
    return answer.String("text");
  }

  Status BeginTrace(const std::string& name) override {
    return Call(name, {{"call", "begin trace"}}).status();
  }

  Result<std::string> EndTrace(const std::string& name) override {
    SLUICE_ASSIGN_OR_RETURN(const Message said,
                            Call(name, {{"call", "end trace"}}));
    return std::string(reinterpret_cast<const char*>(said.body.data()),
                       said.body.size());
  }

  double seconds() const override { return task_->rendezvous()->seconds(); }
  Status Lost() override { return task_->AskLost(); }

  Status Renew(const std::string& name) override {
    constexpr std::chrono::seconds kTry(1);  // to connect
    SLUICE_ASSIGN_OR_RETURN(const Task::LinkPtr link, Reach(name, kTry));
    SLUICE_RETURN_IF_ERROR(
        task_->Call(link, {R"({"call": "end earlier"})", {}}).status());
    task_->ForgetLost(name);
    return {};
  }

 private:
  // Of a task that was not there and gone.
  Result<Message> Call(const std::string& name, const Json& head) {
    // Looked for first: where that ends from here on, nobody else is asked.
    Task::LinkPtr link = task_->Find(name);
    SLUICE_RETURN_IF_ERROR(task_->Lost(name));
    if (link == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(link, Reach(name, options_.connect_timeout));
    }
    return task_->Call(link, {head.Text(), {}});
  }

  Result<Task::LinkPtr> Reach(const std::string& name,
                              std::chrono::milliseconds patience) {
    const auto task =
        std::find_if(tasks_.begin(), tasks_.end(),
                     [&](const ClusterTask& one) { return one.name == name; });
    if (task == tasks_.end()) {
      return NotFound(fmt::format("no task of the cluster is '{}'", name));
    }
    return task_->Reach(*task, After(patience));
  }

  const ClusterOptions options_;
  const std::vector<ClusterTask> tasks_;
  const std::shared_ptr<Task> task_;
};

}  // namespace

Result<std::shared_ptr<Cluster>> MakeCluster(const ClusterOptions& options,
                                             std::vector<ClusterTask> tasks) {
  SLUICE_ASSIGN_OR_RETURN(auto tls, Task::TlsOf(options.task));
  ClusterOptions named = options;
  if (named.task.name.empty() && tls != nullptr) {
    named.task.name = TaskNameOf(tls->identity());
  } else if (named.task.name.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string word, RandomWord());
    named.task.name = "master " + word.substr(0, 8);
  }
  return std::shared_ptr<Cluster>(std::make_shared<MastersCluster>(
      named, std::move(tasks), std::move(tls)));
}

}  // namespace sluice::dist
