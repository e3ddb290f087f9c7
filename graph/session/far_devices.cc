// A session's devices of other tasks: they are opened, come back, have
// variables, and are given their parts of a step.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "graph/compile/describe_device.h"
#include "graph/session/session_state.h"

namespace sluice {
// Before any step: steps may still be refused, this not be undone.
void Session::Impl::OpenCluster() {
  Cluster::Request request;
  for (const std::string& name : options.devices) {
    if (!IsHere(name, options.task)) request.devices.push_back(name);
  }
  if (request.devices.empty() || options.cluster == nullptr) return;
  if (options.rendezvous != nullptr) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is another task's device: a session that has "
                            "such takes the cluster's rendezvous",
                            request.devices[0]));
  }
  for (const auto& device : devices) {
    request.incarnations.push_back(device->incarnation());
    request.descriptions.push_back(DescribeDevice(*device).ToText());
  }
  request.concurrent_runs = options.concurrent_runs;
  request.container = options.container;
  cluster = options.cluster->Open(request).ValueOrThrow();
  rendezvous = cluster->rendezvous();
  MutexLock lock(cache_mutex);
  generation = cluster->Connect().ValueOrThrow();
}

Status Session::Impl::Reconnect() {
  if (cluster == nullptr) return {};
  SLUICE_ASSIGN_OR_RETURN(const uint64_t now, cluster->Connect());
  if (now == generation) return {};
  while (!cache.empty()) Retire();
  generation = now;
  return {};
}

std::string Session::Impl::FarHomeOf(const Output& variable) const {
  if (cluster == nullptr || !variable.valid() ||
      !variable.node().IsVariable()) {
    return {};
  }
  const std::string& asked = variable.node().device();
  const std::string& device = asked.empty() ? options.devices[0] : asked;
  return IsHere(device, options.task) ? "" : device;
}

Status PreparedStep::Impl::RegisterRemotes(const std::vector<StepPart>& parts) {
  std::map<std::string, std::vector<const StepPart*>> by_task;
  for (const StepPart& part : parts)
    by_task[TaskOf(part.device)].push_back(&part);
  for (const auto& [task, mine] : by_task) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<RemoteParts> registered,
                            session.cluster->Register(mine[0]->device, mine));
    remotes.push_back(std::move(registered));
  }
  return {};
}

}  // namespace sluice
