#include "graph/session/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/session/session_state.h"

namespace sluice {
namespace {

bool AnyCpu(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    const Result<DeviceName> parsed = ParseDeviceName(name);
    return parsed.ok() && parsed->type == DeviceType::kCpu;
  });
}

}  // namespace

Session::Session(const Graph& graph, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(graph, options)) {
  impl_->rendezvous = options.rendezvous;
  if (impl_->rendezvous == nullptr) {
    impl_->rendezvous = std::make_shared<LocalRendezvous>();
  }
  if (options.devices.empty()) {
    throw Error(Code::kInvalidArgument, "a session needs at least one device");
  }
  std::vector<std::string>& names = impl_->options.devices;
  if (options.soft_placement && !AnyCpu(names)) {
    names.emplace_back("/cpu:0");
  }
  for (const std::string& text : names) {
    const DeviceName name = ParseDeviceName(text).ValueOrThrow();
    impl_->devices.push_back(
        Device::Open(name, {options.share_accelerators, options.container})
            .ValueOrThrow());
  }
}

Session::~Session() = default;

Result<std::shared_ptr<PreparedStep::Impl>> Session::Impl::Cache(
    const StepRequest& request) {
  Key key = {static_cast<int64_t>(graph.version())};
  for (const FeedShape& feed : request.feeds) {
    key.push_back(feed.output.valid() ? feed.output.node().id() : -1);
    key.push_back(feed.output.index());
    key.insert(key.end(), feed.shape.begin(), feed.shape.end());
    key.push_back(-2);
  }
  key.push_back(-3);
  for (const Output& fetch : request.fetches) {
    key.push_back(fetch.valid() ? fetch.node().id() : -1);
    key.push_back(fetch.index());
  }
  key.push_back(-3);
  for (const Operation& target : request.targets) {
    key.push_back(target.valid() ? target.node().id() : -1);
  }
  if (auto it = cache_index.find(key); it != cache_index.end()) {
    cache.splice(cache.begin(), cache, it->second);
    return cache.front().step;
  }
  // Analysis of locks does not look into lambdas.
  const bool constants = frozen;
  Result<BuiltStep> built = [&]() -> Result<BuiltStep> {
    try {
      return BuildStep(graph, request, devices, options, constants);
    } catch (const Error& error) {
      return error.status();
    }
  }();
  if (!built.ok()) return built.status();
  auto prepared =
      std::make_shared<PreparedStep::Impl>(*this, *std::move(built), request);
  cache.push_front({key, prepared});
  cache_index[key] = cache.begin();
  if (static_cast<int>(cache.size()) > std::max(1, options.plan_cache_size)) {
    Retire();
  }
  return prepared;
}

void Session::Impl::Retire() {
  std::erase_if(retired,
                [](const auto& unused) { return unused.use_count() == 1; });
  cache_index.erase(cache.back().key);
  if (cache.back().step.use_count() > 1) {
    retired.push_back(std::move(cache.back().step));
  }
  cache.pop_back();
}

PreparedStep Session::Prepare(const std::vector<FeedShape>& feeds,
                              const std::vector<Output>& fetches,
                              const std::vector<Operation>& targets) {
  MutexLock lock(impl_->run_mutex);
  return PreparedStep(impl_->Cache({feeds, fetches, targets}).ValueOrThrow());
}

std::vector<Tensor> Session::Run(const std::vector<Feed>& feeds,
                                 const std::vector<Output>& fetches,
                                 const std::vector<Operation>& targets) {
  std::vector<FeedShape> shapes;
  std::vector<Tensor> values;
  for (const Feed& feed : feeds) {
    shapes.push_back({feed.output, feed.value.shape()});
    values.push_back(feed.value);
  }
  PreparedStep step = Prepare(shapes, fetches, targets);
  std::vector<Tensor> results = step.MakeFetches();
  step.Run(values, results);
  return results;
}

Tensor Session::Run(const std::vector<Feed>& feeds, const Output& fetch,
                    const std::vector<Operation>& targets) {
  return Run(feeds, std::vector<Output>{fetch}, targets)[0];
}

void Session::Run(const std::vector<Feed>& feeds, const Operation& target) {
  Run(feeds, std::vector<Output>{}, {target});
}

void Session::Initialize() {
  Initialize(impl_->graph.Variables());
}

void Session::Initialize(const std::vector<Output>& only) {
  std::vector<Operation> targets;
  for (Node* node : impl_->graph.Initializers()) {
    for (const Output& variable : only) {
      if (variable == node->input(0)) targets.emplace_back(node);
    }
  }
  if (targets.empty()) return;
  // First values depend on the seed alone, not on when they are asked for, and
  // steps that other threads run meanwhile count as ever.
  ThrowIfError(Prepare({}, {}, targets).impl_->Run({}, {}, /*at_step=*/0));
}

// --- Variables ---------------------------------------------------------------

Session::Impl::Found Session::Impl::Find(const Output& variable) const {
  if (!variable.valid() || !variable.node().Is("Variable")) {
    throw Error(Code::kInvalidArgument,
                fmt::format("'{}' is not a variable",
                            variable.valid() ? variable.name() : ""));
  }
  for (const auto& device : devices) {
    if (Variable* found = device->variables().Find(variable.node().origin())) {
      return {found, device.get()};
    }
  }
  return {};
}

Tensor Session::Read(const Output& variable) const {
  MutexLock lock(impl_->run_mutex);
  const auto [found, device] = impl_->Find(variable);
  if (found == nullptr || !found->initialized) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("variable '{}' is not initialised", variable.name()));
  }
  const ReaderLock unchanged(found->mutex);
  return device->memory().Download(found->value).ValueOrThrow();
}

void Session::Write(const Output& variable, const Tensor& value) {
  MutexLock lock(impl_->run_mutex);
  if (impl_->frozen) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("variable '{}' cannot be written: the session is "
                            "frozen",
                            variable.name()));
  }
  auto [found, home] = impl_->Find(variable);
  if (!(TensorTypeOf(value) == variable.type())) {
    throw Error(Code::kInvalidArgument,
                fmt::format("variable '{}' is {}, the value {}",
                            variable.name(), variable.type().ToString(),
                            TensorTypeOf(value).ToString()));
  }
  if (found == nullptr) {
    home = impl_->devices[0].get();
    for (const auto& device : impl_->devices) {
      if (device->name().ToString() == variable.node().device()) {
        home = device.get();
      }
    }
    found = home->variables()
                .Declare(variable.node().origin(), variable.type())
                .ValueOrThrow();
  }
  {
    const WriterLock alone(found->mutex);
    ThrowIfError(home->memory().Store(value, found->value));
  }
  found->initialized = true;
}

bool Session::IsInitialized(const Output& variable) const {
  MutexLock lock(impl_->run_mutex);
  const Variable* found = impl_->Find(variable).variable;
  return found != nullptr && found->initialized;
}

void Session::Freeze() {
  MutexLock lock(impl_->run_mutex);
  impl_->frozen = true;
  while (!impl_->cache.empty()) impl_->Retire();
}

// --- The rest ----------------------------------------------------------------

uint64_t Session::step() const {
  MutexLock lock(impl_->run_mutex);
  return impl_->step;
}

void Session::set_step(uint64_t step) {
  MutexLock lock(impl_->run_mutex);
  impl_->step = step;
}

void Session::Cancel() {
  impl_->stop.Stop(Cancelled("the step was cancelled"));
}

void Session::SetObserver(Observer* observer) {
  MutexLock lock(impl_->run_mutex);
  impl_->observer = observer;
}

std::string Session::FindNonFinite(const std::vector<Feed>& feeds,
                                   const std::vector<Output>& fetches) {
  struct Saved {
    Variable* variable;
    const DeviceMemory& memory;
    Tensor value;  // on the host
  };
  std::vector<Saved> saved;
  Observer* before;
  {
    MutexLock lock(impl_->run_mutex);
    for (const auto& device : impl_->devices) {
      if (device->variables().shared()) {
        throw Error(Code::kFailedPrecondition,
                    fmt::format("the variables of container '{}' are not the "
                                "session's alone: what is not finite cannot be "
                                "looked for",
                                impl_->options.container));
      }
      for (Variable* variable : device->variables().All()) {
        saved.push_back(
            {variable, device->memory(),
             device->memory().Download(variable->value).ValueOrThrow()});
      }
    }
    before = impl_->observer;
  }
  // What is wrong before the step begins comes first.
  for (const auto& [variable, memory, value] : saved) {
    if (variable->initialized &&
        !AllFinite(value.dtype(), value.raw(), value.elements())) {
      return variable->name;
    }
  }
  FiniteCheck check;
  SetObserver(&check);
  try {
    Run(feeds, fetches);
  } catch (const Error&) {
    // The check ends the step with an error.
  }
  SetObserver(before);
  MutexLock lock(impl_->run_mutex);
  for (const auto& [variable, memory, value] : saved) {
    ThrowIfError(memory.Store(value, variable->value));
  }
  return check.node();
}

const SessionOptions& Session::options() const {
  return impl_->options;
}

size_t Session::variable_bytes() const {
  size_t total = 0;
  for (const auto& device : impl_->devices) {
    total += device->variables().bytes();
  }
  return total;
}

std::optional<size_t> Session::available_accelerator_bytes() const {
  MutexLock lock(impl_->run_mutex);
  std::optional<size_t> least;
  for (const auto& device : impl_->devices) {
    if (device->accelerator() == nullptr) continue;
    const size_t available = device->accelerator()->memory().available;
    least = std::min(least.value_or(available), available);
  }
  return least;
}

size_t Session::arena_bytes() const {
  MutexLock lock(impl_->run_mutex);
  size_t total = 0;
  for (const auto& device : impl_->devices) total += device->arena().bytes();
  return total;
}

}  // namespace sluice
