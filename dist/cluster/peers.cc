#include "dist/cluster/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/cluster/introduction.h"
#include "dist/cluster/task.h"
#include "dist/collective/texts.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/passes/device_description.h"
#include "graph/session/cluster.h"

namespace sluice::dist {
namespace {

// A peer and the way to it; null: this one.
struct KnownPeer : Peer {
  Task::LinkPtr link;
};

// A session's runs have the same numbers on all peers, which begin them in the
// same order.
class AgreedRuns final : public Rendezvous {
 public:
  AgreedRuns(std::shared_ptr<Task> task, uint64_t first)
      : task_(std::move(task)), next_(first) {}

  bool tells() const override { return all().tells(); }
  void AddDevices(std::span<const OwnMemory> devices) override {
    all().AddDevices(devices);
  }
  void RemoveDevices(std::span<const OwnMemory> devices) override {
    all().RemoveDevices(devices);
  }
  RunKey NewRun() override { return {0, next_++}; }
  Result<sluice::Exchange*> Join(const RunKey& run, int edges, int parts,
                                 TimePoint deadline) override {
    return all().Join(run, edges, parts, deadline);
  }
  void Leave(const RunKey& run) override { all().Leave(run); }
  void Abort(const RunKey& run, const Status& status) override {
    all().Abort(run, status);
  }
  void BeginEpoch(uint64_t epoch) override { all().BeginEpoch(epoch); }

 private:
  LinkedRendezvous& all() const { return *task_->rendezvous(); }

  const std::shared_ptr<Task> task_;
  std::atomic<uint64_t> next_;
};

// A peer's parts of a step, which it has made itself.
class PeersParts final : public RemoteParts {
 public:
  PeersParts(std::shared_ptr<Task> task, Task::LinkPtr link)
      : task_(std::move(task)), link_(std::move(link)) {}

  // So that its end, or an abort there, ends the run here, and the other way
  // round. Nobody waits for its parts but for what they send.
  void Start(const RunOrder& order, RunEnd& end) override {
    end.Ended(task_->rendezvous()->Needs(order.key, link_));
  }
  void Release(const RunKey& run, const Status&) override {
    task_->rendezvous()->Release(run);
  }

 private:
  const std::shared_ptr<Task> task_;
  const Task::LinkPtr link_;
};

// A device of a peer.
struct PeersDevice {
  std::string description;
  Task::LinkPtr link;  // null: this one's
};
using PeersDevices = std::map<std::string, PeersDevice>;  // by name

class PeersSession final : public ClusterSession {
 public:
  // `devices` has `far` among its names, which are those of the others, of
  // these incarnations.
  PeersSession(std::shared_ptr<Task> task, std::vector<std::string> far,
               std::vector<uint64_t> incarnations, PeersDevices devices,
               uint64_t first_run)
      : task_(std::move(task)),
        far_(std::move(far)),
        incarnations_(std::move(incarnations)),
        devices_(std::move(devices)),
        runs_(std::make_shared<AgreedRuns>(task_, first_run)) {}
  ~PeersSession() override { task_->rendezvous()->Forget(incarnations_); }

  std::shared_ptr<Rendezvous> rendezvous() override { return runs_; }
  void Refuse(const RunKey& run, const Status& why) override {
    LinkedRendezvous& all = *task_->rendezvous();
    all.Abort(run, why);
    for (const auto& [name, device] : devices_) {
      // Tells its task, if that is there.
      if (device.link != nullptr) (void)all.Needs(run, device.link);
    }
    all.Release(run);
  }
  // Who is gone does not come back. Who has not lost anybody, and may run what
  // is not prepared here, would wait for it: that run is refused.
  Result<uint64_t> Connect() override {
    Status lost = task_->Lost();
    if (lost.ok()) return 0;
    Refuse(runs_->NewRun(), lost);
    return lost;
  }
  std::vector<std::string> Descriptions() const override {
    std::vector<std::string> all;
    for (const std::string& device : far_) {
      all.push_back(devices_.at(device).description);
    }
    return all;
  }
  Result<std::unique_ptr<RemoteParts>> Register(
      const std::string& device, const std::vector<const StepPart*>&) override {
    return std::unique_ptr<RemoteParts>(
        std::make_unique<PeersParts>(task_, devices_.at(device).link));
  }

  Result<Tensor> Read(const std::string& device,
                      const std::string& variable) override {
    return NotHere(device, variable);
  }
  Status Write(const std::string&, const std::string&, const Tensor&) override {
    return {};
  }
  Result<bool> IsInitialized(const std::string& device,
                             const std::string& variable) override {
    return NotHere(device, variable);
  }

 private:
  static Status NotHere(const std::string& device,
                        const std::string& variable) {
    return FailedPrecondition(
        fmt::format("variable '{}' is on {}, whose process alone can read it",
                    variable, device));
  }

  const std::shared_ptr<Task> task_;
  const std::vector<std::string> far_;
  const std::vector<uint64_t> incarnations_;
  const PeersDevices devices_;
  const std::shared_ptr<AgreedRuns> runs_;
};

class Peers final : public Cluster {
 public:
  Peers(PeersOptions options, Collective& group, std::shared_ptr<Task> task,
        int port)
      : options_(std::move(options)),
        group_(group),
        task_(std::move(task)),
        port_(port) {}

  Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) override {
    SLUICE_ASSIGN_OR_RETURN(std::vector<KnownPeer> peers, Introduce(request));
    SLUICE_RETURN_IF_ERROR(Agree(Meet(peers)));
    std::vector<uint64_t> far;
    Result<PeersDevices> devices = ReachAll(peers, request.devices, &far);
    if (!devices.ok()) {
      task_->rendezvous()->Forget(far);
      return devices.status();
    }
    return std::unique_ptr<ClusterSession>(std::make_unique<PeersSession>(
        task_, request.devices, std::move(far), *std::move(devices),
        peers[0].first_run));
  }

  Result<std::string> Ask(const std::string& task,
                          const std::string&) override {
    return Unimplemented(task + " is a peer and answers no questions");
  }
  Status Lost() override { return task_->Lost(); }

 private:
  // All, by rank. Waits for them.
  Result<std::vector<KnownPeer>> Introduce(const Request& request) {
    Peer own;
    own.address = {task_->name(), options_.host, port_};
    own.descriptions = request.descriptions;
    own.incarnations = request.incarnations;
    std::random_device random;
    own.first_run = uint64_t{random() >> 1} << 32 | random();
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            GatherTexts(group_, "peers", own.ToText()));
    std::vector<KnownPeer> peers;
    for (const std::string& text : texts) {
      SLUICE_ASSIGN_OR_RETURN(Peer peer, Peer::Parse(text));
      peers.push_back({std::move(peer), nullptr});
    }
    return peers;
  }
  // Each connects to those before it, so that two are connected once. All have
  // listened since before they told where.
  Status Meet(std::vector<KnownPeer>& peers) {
    const Deadline deadline = After(options_.connect_timeout);
    for (int rank = 0; rank < group_.rank(); ++rank) {
      KnownPeer& peer = peers[static_cast<size_t>(rank)];
      SLUICE_ASSIGN_OR_RETURN(peer.link,
                              task_->Reach(peer.address, deadline,
                                           /*awaits_listener=*/false));
    }
    return {};
  }
  // The devices of all, `wanted` among them. Adds the incarnations that there
  // are ways to from now on to *far, also where it fails.
  Result<PeersDevices> ReachAll(std::vector<KnownPeer>& peers,
                                const std::vector<std::string>& wanted,
                                std::vector<uint64_t>* far) {
    PeersDevices devices;
    for (size_t rank = 0; rank < peers.size(); ++rank) {
      KnownPeer& peer = peers[rank];
      if (rank != static_cast<size_t>(group_.rank())) {
        SLUICE_RETURN_IF_ERROR(Reach(&peer));
        far->insert(far->end(), peer.incarnations.begin(),
                    peer.incarnations.end());
      }
      for (size_t i = 0; i < peer.devices.size(); ++i) {
        const PeersDevice device = {peer.descriptions[i], peer.link};
        if (devices.emplace(peer.devices[i], device).second) continue;
        return InvalidArgument(
            fmt::format("two peers have device '{}'", peer.devices[i]));
      }
    }
    for (const std::string& device : wanted) {
      if (devices.contains(device)) continue;
      return NotFound(fmt::format("none of the {} peers has device '{}'",
                                  peers.size(), device));
    }
    return devices;
  }
  // From now on it is sent to. Those behind this one have connected.
  Status Reach(KnownPeer* peer) {
    if (peer->link == nullptr) peer->link = task_->Find(peer->address.name);
    if (peer->link == nullptr) {
      return Unavailable(fmt::format("no way to {}", peer->address.name));
    }
    return task_->rendezvous()->Reach(peer->incarnations, peer->link);
  }
  // The first error of all, so that nobody goes on without the others.
  Status Agree(const Status& mine) {
    const std::string text =
        mine.ok() ? "" : fmt::format("{}: {}", task_->name(), mine.message());
    SLUICE_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        GatherTexts(group_, "whether peers have met", text));
    SLUICE_RETURN_IF_ERROR(mine);
    for (const std::string& one : all) {
      if (!one.empty()) return Unavailable(one);
    }
    return {};
  }

  const PeersOptions options_;
  Collective& group_;
  const std::shared_ptr<Task> task_;
  const int port_;
};

}  // namespace

Result<std::shared_ptr<Cluster>> MakePeers(const PeersOptions& options,
                                           Collective& group) {
  SLUICE_ASSIGN_OR_RETURN(auto tls, Task::TlsOf(options.task));
  auto task = std::make_shared<Task>(options.task, std::move(tls), nullptr);
  SLUICE_ASSIGN_OR_RETURN(
      Listener listener,
      Listener::OpenPreferring(options.host, options.port, options.task.note));
  SLUICE_ASSIGN_OR_RETURN(const int port, task->Listen(std::move(listener)));
  return std::shared_ptr<Cluster>(
      std::make_shared<Peers>(options, group, std::move(task), port));
}

}  // namespace sluice::dist
