#include "graph/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>

#include "engine/executor.h"
#include "engine/rendezvous.h"
#include "engine/step_threads.h"
#include "graph/step_builder.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

TensorType TypeFor(const Tensor& tensor) {
  return {tensor.dtype(), tensor.shape()};
}

}  // namespace

// --- State -------------------------------------------------------------------

struct Session::Impl {
  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;

  // Held while a step is prepared or runs, and while variables are touched.
  mutable Mutex run_mutex;
  StepThreads threads GUARDED_BY(run_mutex);
  Observer* observer GUARDED_BY(run_mutex) = nullptr;
  uint64_t step GUARDED_BY(run_mutex) = 0;
  bool frozen GUARDED_BY(run_mutex) = false;
  StepStop stop;  // has a lock of its own: Cancel comes from other threads

  // Prepared steps by request, least recently used last.
  using Key = std::vector<int64_t>;
  struct Cached {
    Key key;
    std::shared_ptr<PreparedStep::Impl> step;
  };
  std::list<Cached> cache GUARDED_BY(run_mutex);
  std::map<Key, std::list<Cached>::iterator> cache_index GUARDED_BY(run_mutex);

  Impl(const Graph& g, const SessionOptions& o) : graph(g), options(o) {}
  Result<std::shared_ptr<PreparedStep::Impl>> Cache(const StepRequest& request)
      REQUIRES(run_mutex);
  // A variable and where it lives.
  struct Found {
    Variable* variable = nullptr;  // null when there is none
    Device* device = nullptr;
  };
  Found Find(const Output& variable) const;
};

struct PreparedStep::Impl {
  struct Part {
    Plan plan;
    std::unique_ptr<Executor> executor;
  };

  Session::Impl& session;
  std::vector<std::unique_ptr<Part>> parts;  // executors point to plans
  std::unique_ptr<LocalRendezvous> rendezvous;
  std::vector<TensorType> feed_types, fetch_types;
  std::vector<std::string> feed_names;
  bool counts = false;                // whether a run advances the step counter
  std::vector<void*> feeds, fetches;  // of the run in flight

  Impl(Session::Impl& s, BuiltStep built, const StepRequest& request);
  Status Run(std::span<const Tensor> feed_values,
             std::span<Tensor> fetch_values);
  Status RunLocked(std::span<const Tensor> feed_values,
                   std::span<Tensor> fetch_values) REQUIRES(session.run_mutex);
  Status CheckOperands(std::span<const Tensor> feed_values,
                       std::span<Tensor> fetch_values) const;
};

// --- PreparedStep ------------------------------------------------------------

PreparedStep::Impl::Impl(Session::Impl& s, BuiltStep built,
                         const StepRequest& request)
    : session(s),
      feed_types(std::move(built.feed_types)),
      fetch_types(std::move(built.fetch_types)),
      counts(!request.targets.empty()),
      feeds(feed_types.size()),
      fetches(fetch_types.size()) {
  for (const FeedShape& feed : request.feeds) {
    feed_names.push_back(feed.output.name());
  }
  if (!built.slot_bytes.empty()) {
    rendezvous = std::make_unique<LocalRendezvous>(built.slot_bytes);
  }
  for (BuiltStep::Part& part : built.parts) {
    parts.push_back(
        std::make_unique<Part>(Part{std::move(part.plan), nullptr}));
    parts.back()->executor =
        std::make_unique<Executor>(parts.back()->plan, *part.device);
  }
}

Status PreparedStep::Impl::CheckOperands(std::span<const Tensor> feed_values,
                                         std::span<Tensor> fetch_values) const {
  if (feed_values.size() != feed_types.size() ||
      fetch_values.size() != fetch_types.size()) {
    return InvalidArgument(fmt::format(
        "the step was prepared for {} feeds and {} fetches, got {} and {}",
        feed_types.size(), fetch_types.size(), feed_values.size(),
        fetch_values.size()));
  }
  for (size_t i = 0; i < feed_types.size(); ++i) {
    const TensorType got = TypeFor(feed_values[i]);
    if (!(got == feed_types[i])) {
      return InvalidArgument(fmt::format("feed of '{}': {} given, wanted {}",
                                         feed_names[i], got.ToString(),
                                         feed_types[i].ToString()));
    }
  }
  for (size_t i = 0; i < fetch_types.size(); ++i) {
    const TensorType got = TypeFor(fetch_values[i]);
    if (!(got == fetch_types[i])) {
      return InvalidArgument(
          fmt::format("fetch {}: a buffer {} given, wanted {}", i,
                      got.ToString(), fetch_types[i].ToString()));
    }
  }
  return {};
}

Status PreparedStep::Impl::Run(std::span<const Tensor> feed_values,
                               std::span<Tensor> fetch_values) {
  MutexLock lock(session.run_mutex);
  return RunLocked(feed_values, fetch_values);
}

Status PreparedStep::Impl::RunLocked(std::span<const Tensor> feed_values,
                                     std::span<Tensor> fetch_values) {
  SLUICE_RETURN_IF_ERROR(CheckOperands(feed_values, fetch_values));
  for (size_t i = 0; i < feeds.size(); ++i) {
    feeds[i] = const_cast<void*>(feed_values[i].raw());
  }
  for (size_t i = 0; i < fetches.size(); ++i) {
    fetches[i] = fetch_values[i].raw();
  }
  const auto limit = session.options.deadline;
  const Clock::time_point deadline =
      limit.count() > 0 ? Clock::now() + limit : Clock::time_point::max();
  if (rendezvous) rendezvous->Begin(deadline);
  session.stop.Begin(rendezvous.get(), deadline);

  StepContext context;
  context.seed = session.options.seed;
  context.step = session.step;
  context.rendezvous = rendezvous.get();
  Observer* const observer = session.observer;
  session.threads.Run(static_cast<int>(parts.size()), [&](int64_t i, int64_t) {
    if (i >= static_cast<int64_t>(parts.size())) return;  // an empty step
    // The first error is the step's; the others only follow from it.
    Status ignored = parts[i]->executor->Run(feeds, fetches, context,
                                             session.stop, observer);
    static_cast<void>(ignored.ok());
  });
  if (session.stop.stopped()) return session.stop.status();
  if (counts) ++session.step;
  return {};
}

void PreparedStep::Run(std::span<const Tensor> feeds,
                       std::span<Tensor> fetches) {
  ThrowIfError(TryRun(feeds, fetches));
}

Status PreparedStep::TryRun(std::span<const Tensor> feeds,
                            std::span<Tensor> fetches) {
  return impl_->Run(feeds, fetches);
}

const std::vector<TensorType>& PreparedStep::fetch_types() const {
  return impl_->fetch_types;
}

std::vector<Tensor> PreparedStep::MakeFetches() const {
  std::vector<Tensor> fetches;
  for (const TensorType& type : impl_->fetch_types) {
    fetches.emplace_back(type.dtype, type.shape);
  }
  return fetches;
}

StepInfo PreparedStep::info() const {
  StepInfo info;
  for (const auto& part : impl_->parts) {
    info.nodes += static_cast<int64_t>(part->plan.instructions.size());
    info.arena_bytes = std::max(info.arena_bytes, part->plan.arena_bytes);
    info.arena_lower_bound =
        std::max(info.arena_lower_bound, part->plan.arena_lower_bound);
    for (const Tensor& constant : part->plan.constants) {
      info.constant_bytes += constant.bytes();
    }
    if (info.why_not_captured.empty()) {
      info.why_not_captured = part->executor->why_not_captured();
    }
  }
  return info;
}

// --- Session -----------------------------------------------------------------

Session::Session(const Graph& graph, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(graph, options)) {
  if (options.devices.empty()) {
    throw Error(Code::kInvalidArgument, "a session needs at least one device");
  }
  std::vector<std::string>& names = impl_->options.devices;
  if (options.soft_placement && FirstCpu(names).empty()) {
    names.emplace_back("/cpu:0");
  }
  for (const std::string& text : names) {
    const DeviceName name = ParseDeviceName(text).ValueOrThrow();
    impl_->devices.push_back(
        Device::Open(name, options.share_accelerators).ValueOrThrow());
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
    cache_index.erase(cache.back().key);
    cache.pop_back();
  }
  return prepared;
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
  // First values depend on the seed alone, not on when they are asked for.
  const uint64_t before = step();
  set_step(0);
  Run({}, std::vector<Output>{}, targets);
  set_step(before);
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
  if (!(TypeFor(value) == variable.type())) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("variable '{}' is {}, the value {}", variable.name(),
                    variable.type().ToString(), TypeFor(value).ToString()));
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
  ThrowIfError(home->memory().Store(value, found->value));
  found->initialized = true;
  ++found->version;
}

bool Session::IsInitialized(const Output& variable) const {
  MutexLock lock(impl_->run_mutex);
  const Variable* found = impl_->Find(variable).variable;
  return found != nullptr && found->initialized;
}

void Session::Freeze() {
  MutexLock lock(impl_->run_mutex);
  impl_->frozen = true;
  impl_->cache.clear();
  impl_->cache_index.clear();
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
