#include "graph/session/part_session.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "engine/caught.h"
#include "graph/compile/describe_device.h"
#include "graph/compile/extract.h"
#include "graph/session/session_state.h"

namespace sluice {
namespace {

// Of one session, whose master drops those that it needs no more: each keeps
// its plan and its memory.
constexpr size_t kMostSteps = 4096;

}  // namespace

// A session without a graph: its steps come as parts.
struct PartSession::Impl {
  explicit Impl(const SessionOptions& options) : session(graph, options) {}

  Result<Device*> Find(const std::string& device) const;
  Status CheckNew(uint64_t number) const REQUIRES(mutex);

  const Graph graph;
  Session::Impl session;
  Mutex mutex;
  std::map<uint64_t, std::shared_ptr<PreparedStep::Impl>> steps
      GUARDED_BY(mutex);
};

PartSession::PartSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PartSession::~PartSession() {
  impl_->session.lanes.Stop(Cancelled("the session has ended"));
  const Lanes::AllTurns alone(impl_->session.lanes);
  impl_->session.rendezvous->RemoveDevices(impl_->session.OwnMemories());
}

Result<std::unique_ptr<PartSession>> PartSession::Open(const Options& options) {
  SessionOptions settings;
  settings.devices = options.devices;
  settings.concurrent_runs = options.concurrent_runs;
  settings.rendezvous = options.rendezvous;
  if (options.devices.empty() || options.concurrent_runs < 1) {
    return InvalidArgument("a session of no devices, or of no runs at a time");
  }
  auto impl = std::make_unique<Impl>(settings);
  impl->session.rendezvous = options.rendezvous;
  for (const std::string& text : options.devices) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(text));
    SLUICE_ASSIGN_OR_RETURN(
        std::unique_ptr<Device> device,
        Device::Open(name, {.container = options.container,
                            .share_variables = options.concurrent_runs > 1,
                            .job = options.job,
                            .task = options.task}));
    impl->session.devices.push_back(std::move(device));
  }
  impl->session.lanes.Open(options.concurrent_runs, impl->session.devices);
  options.rendezvous->AddDevices(impl->session.OwnMemories());
  return std::unique_ptr<PartSession>(new PartSession(std::move(impl)));
}

DeviceDescriptions PartSession::Describe() const {
  DeviceDescriptions all;
  for (const auto& device : impl_->session.devices) {
    all.push_back(DescribeDevice(*device));
  }
  return all;
}

Result<Device*> PartSession::Impl::Find(const std::string& device) const {
  for (const auto& open : session.devices) {
    if (open->name().ToString() == device) return open.get();
  }
  return NotFound(fmt::format("device '{}' is not open here", device));
}

Status PartSession::Impl::CheckNew(uint64_t number) const {
  if (steps.contains(number)) {
    return AlreadyExists(fmt::format("step {} is registered", number));
  }
  if (steps.size() < kMostSteps) return {};
  return ResourceExhausted(fmt::format(
      "{} steps are registered, and a session has no more", steps.size()));
}

Status PartSession::Register(uint64_t number,
                             const std::vector<std::string>& parts) {
  try {
    if (parts.size() > impl_->session.devices.size()) {
      return InvalidArgument(fmt::format("{} parts of a step for {} devices",
                                         parts.size(),
                                         impl_->session.devices.size()));
    }
    {
      // Before the work; whoever else registers may still come before it.
      MutexLock lock(impl_->mutex);
      SLUICE_RETURN_IF_ERROR(impl_->CheckNew(number));
    }
    BuiltStep built;
    for (const std::string& text : parts) {
      SLUICE_ASSIGN_OR_RETURN(StepPart part, ParsePart(text));
      SLUICE_ASSIGN_OR_RETURN(const Device* device, impl_->Find(part.device));
      if (part.incarnation != device->incarnation()) {
        return FailedPrecondition(
            fmt::format("device '{}' is another one than the step was cut for",
                        part.device));
      }
      if (!FeedTypes(*part.graph).ok() || !FetchTypes(*part.graph).ok() ||
          !FeedTypes(*part.graph)->empty() ||
          !FetchTypes(*part.graph)->empty()) {
        return InvalidArgument("feeds and fetches are the master's");
      }
      built.edges = part.edges;
      built.cut.push_back(std::move(part));
    }
    SLUICE_ASSIGN_OR_RETURN(built.parts,
                            CompileParts(built.cut, impl_->session.devices));
    auto step = std::make_shared<PreparedStep::Impl>(
        impl_->session, std::move(built), StepRequest());
    MutexLock lock(impl_->mutex);
    SLUICE_RETURN_IF_ERROR(impl_->CheckNew(number));
    impl_->steps.emplace(number, std::move(step));
    return {};
  } catch (...) {
    return CaughtStatus();
  }
}

void PartSession::Drop(uint64_t number) {
  std::shared_ptr<PreparedStep::Impl> dropped;  // may take a while
  MutexLock lock(impl_->mutex);
  const auto found = impl_->steps.find(number);
  if (found == impl_->steps.end()) return;
  dropped = std::move(found->second);
  impl_->steps.erase(found);
}

Status PartSession::Start(uint64_t number, const RunOrder& order, RunEnd& end) {
  std::shared_ptr<PreparedStep::Impl> step;
  {
    MutexLock lock(impl_->mutex);
    const auto found = impl_->steps.find(number);
    if (found == impl_->steps.end()) {
      return NotFound(fmt::format("there is no step {} here", number));
    }
    step = found->second;
  }
  return step->StartOrdered(order, end);
}

void PartSession::Stop(const RunKey& run, const Status& status) {
  impl_->session.lanes.Stop(run, status);
}

void PartSession::SetObserver(Observer* observer) {
  MutexLock lock(impl_->session.mutex);
  impl_->session.observer = observer;
}

Result<Tensor> PartSession::Read(const std::string& device,
                                 const std::string& variable) {
  SLUICE_ASSIGN_OR_RETURN(Device * home, impl_->Find(device));
  const OwnTurn turn(impl_->session);
  Variable* const found = home->variables().Find(variable);
  if (found == nullptr || !found->initialized) {
    return FailedPrecondition(
        fmt::format("variable '{}' is not initialised", variable));
  }
  const ReaderLock unchanged(found->mutex);
  return home->memory().Download(found->value);
}

Status PartSession::Write(const std::string& device,
                          const std::string& variable, const Tensor& value) {
  SLUICE_ASSIGN_OR_RETURN(Device * home, impl_->Find(device));
  const OwnTurn turn(impl_->session);
  SLUICE_ASSIGN_OR_RETURN(Variable * found, home->variables().Declare(
                                                variable, TensorTypeOf(value)));
  const WriterLock alone(found->mutex);
  SLUICE_RETURN_IF_ERROR(home->memory().Store(value, found->value));
  found->initialized = true;
  return {};
}

Result<Tensor> PartSession::ReadRows(const std::string& device,
                                     const std::string& variable, int64_t begin,
                                     int64_t count) {
  SLUICE_ASSIGN_OR_RETURN(Device * home, impl_->Find(device));
  const OwnTurn turn(impl_->session);
  SLUICE_ASSIGN_OR_RETURN(Variable * found, WithRows(*home, variable));
  const ReaderLock unchanged(found->mutex);
  SLUICE_ASSIGN_OR_RETURN(const Tensor rows,
                          RowsIn(found->value, variable, begin, count));
  return home->memory().Download(rows);
}

Status PartSession::WriteRows(const std::string& device,
                              const std::string& variable, int64_t begin,
                              const Tensor& rows) {
  SLUICE_ASSIGN_OR_RETURN(Device * home, impl_->Find(device));
  const OwnTurn turn(impl_->session);
  SLUICE_ASSIGN_OR_RETURN(Variable * found, WithRows(*home, variable));
  if (rows.shape().rank() == 0) return InvalidArgument("a scalar has no rows");
  const WriterLock alone(found->mutex);
  SLUICE_ASSIGN_OR_RETURN(
      Tensor to, RowsIn(found->value, variable, begin, rows.shape()[0]));
  if (TensorTypeOf(to) != TensorTypeOf(rows)) {
    return InvalidArgument(fmt::format("variable '{}' has rows {}, not {}",
                                       variable, TensorTypeOf(to).ToString(),
                                       TensorTypeOf(rows).ToString()));
  }
  return home->memory().Store(rows, to);
}

Result<bool> PartSession::IsInitialized(const std::string& device,
                                        const std::string& variable) {
  SLUICE_ASSIGN_OR_RETURN(Device * home, impl_->Find(device));
  const OwnTurn turn(impl_->session);
  const Variable* const found = home->variables().Find(variable);
  return found != nullptr && found->initialized;
}

}  // namespace sluice
