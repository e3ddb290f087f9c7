#include "graph/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/catch_errors.h"
#include "graph/row_pieces.h"
#include "graph/session/session_state.h"

namespace sluice {
namespace {

// Of a session's own.
bool AnyCpu(const SessionOptions& options) {
  const auto& names = options.devices;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const Result<DeviceName> parsed = ParseDeviceName(name);
    return parsed.ok() && parsed->type == DeviceType::kCpu &&
           (options.cluster == nullptr || IsHere(name, options.task));
  });
}

// A CPU behind its own devices, before others' CPUs. Peers have the same
// devices all, which each is told.
void AddCpu(SessionOptions& options) {
  if (!options.task.empty()) return;
  std::vector<std::string>& names = options.devices;
  const auto far =
      std::find_if(names.begin(), names.end(), [&](const std::string& name) {
        return options.cluster != nullptr && !IsHere(name, options.task);
      });
  // Where others' are first, so is what is placed nowhere.
  const auto place = far == names.begin() ? names.end() : far;
  names.insert(place, "/cpu:0");
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
  if (options.concurrent_runs < 1) {
    throw Error(Code::kInvalidArgument,
                fmt::format("concurrent_runs is {}, wanted 1 or more",
                            options.concurrent_runs));
  }
  if (options.concurrent_runs > 1 && options.collective != nullptr) {
    throw Error(Code::kInvalidArgument,
                "a session whose steps meet those of other workers has one run "
                "at a time, for all to have the same order");
  }
  std::vector<std::string>& names = impl_->options.devices;
  // Workers meet on the host, and rows that others have are counted there.
  const auto variables = graph.Variables();
  const bool spreads = std::any_of(
      variables.begin(), variables.end(),
      [](const Output& variable) { return SpreadsRows(variable.node()); });
  if ((options.soft_placement || options.collective != nullptr || spreads) &&
      !AnyCpu(impl_->options)) {
    AddCpu(impl_->options);
  }
  bool any_here = false;
  for (const std::string& text : names) {
    (void)ParseDeviceName(text).ValueOrThrow();
    any_here = any_here || IsHere(text, options.task);
  }
  if (!any_here && options.cluster != nullptr) {
    if (!options.task.empty()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{} has none of the devices that it and its "
                              "peers run steps on",
                              options.task));
    }
    names.emplace_back("/cpu:0");
  }
  const DeviceName own =
      options.task.empty()
          ? DeviceName{}
          : ParseDeviceName(options.task + "/cpu:0").ValueOrThrow();
  for (const std::string& text : names) {
    if (options.cluster != nullptr && !IsHere(text, options.task)) continue;
    impl_->devices.push_back(
        Device::Open(ParseDeviceName(text).ValueOrThrow(),
                     {.share_accelerator = options.share_accelerators,
                      .container = options.container,
                      .share_variables = options.concurrent_runs > 1,
                      .job = own.job,
                      .task = own.task})
            .ValueOrThrow());
  }
  impl_->lanes.Open(options.concurrent_runs, impl_->devices);
  impl_->OpenCluster();
  impl_->rendezvous->AddDevices(impl_->OwnMemories());
}

// What was started and waits for others would have nobody to tell.
Session::~Session() {
  impl_->lanes.Stop(Cancelled("the session has ended"));
  const Lanes::AllTurns alone(impl_->lanes);
  impl_->rendezvous->RemoveDevices(impl_->OwnMemories());
}

std::vector<OwnMemory> Session::Impl::OwnMemories() const {
  std::vector<OwnMemory> all;
  for (const auto& device : devices) {
    if (device->accelerator() == nullptr) continue;
    all.push_back({device->incarnation(), device->accelerator()});
  }
  return all;
}

Result<std::shared_ptr<PreparedStep::Impl>> Session::Impl::Cache(
    const StepRequest& request) {
  SLUICE_RETURN_IF_ERROR(Reconnect());
  // Nodes of another graph have the same ids. ExtractStep refuses these, so
  // that no step with -1 is ever cached.
  const auto id_of = [&](const auto& handle) -> int64_t {
    const bool ours = handle.valid() && &handle.node().graph() == &graph;
    return ours ? handle.node().id() : -1;
  };
  Key key = {static_cast<int64_t>(graph.version())};
  for (const FeedShape& feed : request.feeds) {
    key.push_back(id_of(feed.output));
    key.push_back(feed.output.index());
    key.insert(key.end(), feed.shape.begin(), feed.shape.end());
    key.push_back(-2);
  }
  key.push_back(-3);
  for (const Output& fetch : request.fetches) {
    key.push_back(id_of(fetch));
    key.push_back(fetch.index());
  }
  key.push_back(-3);
  for (const Operation& target : request.targets) {
    key.push_back(id_of(target));
  }
  if (auto it = cache_index.find(key); it != cache_index.end()) {
    cache.splice(cache.begin(), cache, it->second);
    return cache.front().step;
  }
  // Analysis of locks does not look into lambdas.
  FrozenValues* const constants = frozen ? &*frozen : nullptr;
  Result<BuiltStep> built = CatchErrors([&] {
    return BuildStep(graph, request, devices, options, constants,
                     cluster.get());
  });
  if (!built.ok()) return built.status();
  const std::vector<StepPart> remote = std::move(built->remote);
  auto prepared =
      std::make_shared<PreparedStep::Impl>(*this, *std::move(built), request);
  SLUICE_RETURN_IF_ERROR(prepared->RegisterRemotes(remote));
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
  const OwnTurn turn(*impl_);
  MutexLock lock(impl_->cache_mutex);
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
  const auto or_refuse = [&](const auto& prepare) {
    try {
      return prepare();
    } catch (...) {
      if (!impl_->options.task.empty()) {
        (void)impl_->Refuse(impl_->rendezvous->NewRun(), CaughtStatus());
      }
      throw;
    }
  };
  PreparedStep step =
      or_refuse([&] { return Prepare(shapes, fetches, targets); });
  std::vector<Tensor> results = or_refuse([&] { return step.MakeFetches(); });
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
  ThrowIfError(Prepare({}, {}, targets).impl_->Run({}, {}, RunOrder{}));
}

Session::Impl::Beginning Session::Impl::Begin(bool counts) {
  MutexLock lock(mutex);
  const Beginning beginning = {step, replica, observer};
  if (counts) ++step;
  return beginning;
}

Status Session::Impl::Refuse(const RunKey& key, Status why) {
  if (cluster != nullptr) cluster->Refuse(key, why);
  return why;
}

void Session::Impl::GiveBack(uint64_t begun) {
  MutexLock lock(mutex);
  if (step == begun + 1) step = begun;
}

uint64_t Session::step() const {
  MutexLock lock(impl_->mutex);
  return impl_->step;
}

void Session::set_step(uint64_t step) {
  const Lanes::AllTurns alone(impl_->lanes);
  MutexLock lock(impl_->mutex);
  impl_->step = step;
}

void Session::set_replica(uint32_t replica) {
  const Lanes::AllTurns alone(impl_->lanes);
  MutexLock lock(impl_->mutex);
  impl_->replica = replica;
}

void Session::Cancel() {
  impl_->lanes.Stop(Cancelled("the step was cancelled"));
}

Observer* Session::SetObserver(Observer* observer) {
  // The one before may go when this returns.
  const Lanes::AllTurns alone(impl_->lanes);
  MutexLock lock(impl_->mutex);
  return std::exchange(impl_->observer, observer);
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

double Session::busy_seconds() const {
  return impl_->busy.seconds();
}

std::optional<size_t> Session::available_accelerator_bytes() const {
  const Lanes::Turn turn(impl_->lanes);
  std::optional<size_t> least;
  for (const auto& device : impl_->devices) {
    if (device->accelerator() == nullptr) continue;
    const size_t available = device->accelerator()->memory().available;
    least = std::min(least.value_or(available), available);
  }
  return least;
}

size_t Session::arena_bytes() const {
  const Lanes::AllTurns alone(impl_->lanes);
  size_t total = 0;
  for (const auto& lane : alone.lanes()) {
    for (const auto& [device, arena] : lane->arenas) total += arena->bytes();
  }
  return total;
}

}  // namespace sluice
