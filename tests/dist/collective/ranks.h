// A job whose processes are threads.
#ifndef SLUICE_TESTS_DIST_COLLECTIVE_RANKS_H_
#define SLUICE_TESTS_DIST_COLLECTIVE_RANKS_H_

#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective/group.h"
#include "dist/launch_info.h"
#include "dist/net/authority.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "engine/status.h"
#include "tests/support/watchdog.h"

namespace sluice::dist::testing {

using sluice::testing::Watchdog;

inline const std::string& Token() {
  static const std::string token(64, '7');
  return token;
}

// What a launcher on this host would tell the ranks of a job.
inline std::vector<LaunchInfo> Launch(int size) {
  Listener listener = Listener::Open("127.0.0.1").ValueOrThrow();
  std::vector<LaunchInfo> infos;
  for (int rank = 0; rank < size; ++rank) {
    LaunchInfo info;
    info.rank = info.local_rank = rank;
    info.size = info.local_size = size;
    info.host = "127.0.0.1";
    info.port = listener.port();
    info.token = Token();
    if (rank == 0) info.listen_fd = dup(listener.descriptor());
    infos.push_back(info);
  }
  return infos;
}

// The same with certificates of an authority of the job.
inline std::vector<LaunchInfo> LaunchEncrypted(int size) {
  const Authority authority = Authority::Create("test").ValueOrThrow();
  std::vector<LaunchInfo> infos = Launch(size);
  for (LaunchInfo& info : infos) {
    info.credentials =
        authority.Issue("worker", info.rank, std::chrono::hours(1))
            .ValueOrThrow();
  }
  return infos;
}

inline void InThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

using Groups = std::vector<std::unique_ptr<Group>>;

// What the ranks of a job send each other data through.
enum class Wires {
  kTcp,
  kShared,
  kMixed,  // rank 0 by TCP, to and from; the others share
  kTls     // by TCP, encrypted
};
inline const std::vector<Wires>& AllWires() {
  static const std::vector<Wires> all = [] {
    std::vector<Wires> wires = {Wires::kTcp, Wires::kShared, Wires::kMixed};
    if (HasTls()) wires.push_back(Wires::kTls);
    return wires;
  }();
  return all;
}
inline Wires WiresOf(size_t i) {
  return AllWires()[i % AllWires().size()];
}
inline std::vector<LaunchInfo> Launch(int size, Wires wires) {
  return wires == Wires::kTls ? LaunchEncrypted(size) : Launch(size);
}
inline Transport TransportOf(Wires wires, int rank) {
  if (wires == Wires::kShared) return Transport::kShared;
  return wires == Wires::kMixed && rank != 0 ? Transport::kAuto
                                             : Transport::kTcp;
}

// A group of each rank, with options of its own; throws where one cannot join.
inline Groups JoinEach(const std::vector<LaunchInfo>& infos,
                       const std::function<GroupOptions(int rank)>& options) {
  Groups groups(infos.size());
  std::vector<Status> statuses(infos.size());
  InThreads(static_cast<int>(infos.size()), [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    auto group = Group::Join(infos[i], options(rank));
    statuses[i] = group.status();
    if (group.ok()) groups[i] = *std::move(group);
  });
  for (const Status& status : statuses) ThrowIfError(status);
  return groups;
}
inline Groups JoinEach(int size,
                       const std::function<GroupOptions(int rank)>& options) {
  return JoinEach(Launch(size), options);
}
inline Groups JoinAll(int size, const GroupOptions& options = {}) {
  return JoinEach(Launch(size), [&](int) { return options; });
}
inline Groups JoinAll(int size, Wires wires, const GroupOptions& options = {}) {
  return JoinEach(Launch(size, wires), [&](int rank) {
    GroupOptions mine = options;
    mine.transport = TransportOf(wires, rank);
    return mine;
  });
}

// Each rank's thread does `body`; what it returned.
inline std::vector<Status> OnAll(Groups& groups,
                                 const std::function<Status(Group&)>& body) {
  std::vector<Status> statuses(groups.size());
  InThreads(static_cast<int>(groups.size()), [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    statuses[i] = body(*groups[i]);
  });
  return statuses;
}

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_COLLECTIVE_RANKS_H_
