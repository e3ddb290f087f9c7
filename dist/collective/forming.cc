#include "dist/collective/forming.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective/algorithms.h"
#include "dist/collective/gone.h"
#include "dist/collective/hello.h"
#include "dist/collective/patience.h"
#include "dist/collective/places.h"
#include "dist/collective/sharing.h"
#include "dist/collective/trust.h"
#include "dist/membership/membership.h"
#include "dist/membership/rank_name.h"
#include "dist/net/address.h"
#include "dist/net/credentials.h"
#include "dist/net/descriptor.h"
#include "dist/net/frame.h"
#include "dist/net/tls.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
// What the others wait longer than rank 0, whose message says who is missing.
constexpr milliseconds kForAnswer = std::chrono::seconds(3);
constexpr milliseconds kTell = std::chrono::seconds(1);

// How often a name is looked up again that is no host's yet.
constexpr std::chrono::milliseconds kNameAgain(500);

Status CheckAlike(const Hello& own, const Hello& other) {
  if (other.all_reduce == own.all_reduce) return {};
  return FailedPrecondition(
      fmt::format("{} is to all-reduce by {}, {} by {} (--all-reduce)",
                  RankName(other.rank, other.size), NameOf(other.all_reduce),
                  RankName(own.rank, own.size), NameOf(own.all_reduce)));
}

// One process, while it joins.
class Forming {
 public:
  Forming(const LaunchInfo& info, int apart, std::shared_ptr<const Tls> tls,
          bool plaintext, Deadline deadline, const Note& note)
      : info_(info),
        apart_(apart),
        tls_(std::move(tls)),
        plaintext_(plaintext),
        deadline_(deadline),
        note_(note),
        patience_(RankName(info.rank, info.size), deadline, note),
        epoch_(info.epoch) {}

  // The connections, and from here on a membership. Rank 0 has a listener.
  Result<Links> Run(std::optional<Listener> listener, Algorithm all_reduce,
                    LeaseTimes times) {
    hello_.rank = info_.rank;
    hello_.size = info_.size;
    hello_.epoch = info_.epoch;
    hello_.group = info_.group.empty() ? 0 : Key(info_.group);
    hello_.token = info_.token;
    hello_.version = SLUICE_VERSION;
    hello_.all_reduce = all_reduce;
    hello_.node = info_.node;
    if (info_.rank == 0) {
      OpenDoor(*std::move(listener));
      SLUICE_RETURN_IF_ERROR(Gather());
    } else {
      SLUICE_RETURN_IF_ERROR(MeetRankZero(std::move(listener)));
    }
    std::vector<int> hosts;
    for (const Place& place : places_) hosts.push_back(place.host);
    SLUICE_ASSIGN_OR_RETURN(
        Links links, Connect(Plan(all_reduce, std::move(hosts), info_.rank)));
    SLUICE_ASSIGN_OR_RETURN(links.address, OwnAddress());
    SLUICE_RETURN_IF_ERROR(Enter(times, &links));
    return links;
  }

 private:
  int size() const { return info_.size; }

  void OpenDoor(Listener listener) {
    door_.emplace(std::move(listener), hello_, tls_, note_,
                  [this](int rank) { return info_.JobRank(rank); });
  }

  // Rank 0's is what another host's rank has reached it by, if there is one.
  Result<std::string> OwnAddress() const {
    if (info_.rank != 0) return hello_.address;
    const Socket* reached = &control_[1];
    for (size_t i = 1; i < control_.size(); ++i) {
      SLUICE_ASSIGN_OR_RETURN(const Address own,
                              LocalAddressOf(control_[i].descriptor()));
      if (!IsLoopback(own)) reached = &control_[i];
    }
    return reached->LocalAddress();
  }

  // Rank 0: hears all, tells all. Where one is missing or wants something else,
  // tells those that came.
  Status Gather() {
    std::vector<std::optional<Guest>> guests(static_cast<size_t>(size()));
    Status all = Hear(guests);
    places_.resize(guests.size());
    control_.resize(guests.size());
    hosts_.resize(guests.size());
    Hosts hosts(hello_.node);
    for (size_t i = 1; i < guests.size(); ++i) {
      if (!guests[i]) continue;
      const Hello& hello = guests[i]->hello;
      if (all.ok()) all = CheckAlike(hello_, hello);
      const Result<std::string> reached = guests[i]->socket.LocalAddress();
      places_[i] = {hello.address, hello.port,
                    hosts.NumberOf(hello.node, hello.address,
                                   reached.ok() ? *reached : "")};
      hosts_[i] = hello.node.empty() ? hello.address : hello.node;
    }
    for (auto& guest : guests) {
      if (!guest) continue;
      if (!all.ok()) {
        (void)SendError(guest->socket, 0, all, After(kTell)).ok();
        continue;
      }
      all = SendPlaces(places_, info_.epoch, guest->socket, After(kTell));
      if (!all.ok()) continue;
      control_[static_cast<size_t>(guest->hello.rank)] =
          std::move(guest->socket);
    }
    return all.ok() ? all : GiveUp(control_, 0, size(), epoch_, all);
  }

  // What an elastic job's launcher, or the group of a part, knows of others.
  Status Apart() const {
    pollfd told = {apart_, POLLIN, 0};
    if (Wait({&told, 1}, Deadline()) <= 0) return {};
    return Unavailable("one of the others has ended before all were here");
  }

  Status Hear(std::vector<std::optional<Guest>>& guests) {
    while (true) {
      SLUICE_RETURN_IF_ERROR(Apart());
      std::vector<pollfd> ends;
      for (const auto& guest : guests) {
        ends.push_back({guest ? guest->socket.descriptor() : -1, POLLRDHUP, 0});
      }
      (void)Wait(ends, Deadline());
      std::vector<int> missing;
      for (int rank = 1; rank < size(); ++rank) {
        const auto i = static_cast<size_t>(rank);
        if (ends[i].revents != 0) {  // it may be started again
          ends[i].fd = -1;
          guests[i].reset();
        }
        if (!guests[i]) missing.push_back(rank);
      }
      if (missing.empty()) return {};
      ends.push_back({apart_, POLLIN, 0});
      Result<Guest> guest = door_->Admit(patience_.next(), ends);
      if (guest.status().code() == Code::kCancelled) continue;
      if (guest.status().code() == Code::kDeadlineExceeded) {
        SLUICE_RETURN_IF_ERROR(patience_.Waited(RankNames(missing)));
        continue;
      }
      SLUICE_RETURN_IF_ERROR(guest.status());
      const Hello& hello = guest->hello;
      auto& place = guests[static_cast<size_t>(hello.rank)];
      if (place && AnyGone({&place->socket, 1})) place.reset();
      if (hello.lane != Lane::kForming || hello.rank == 0 || place) {
        door_->Refuse(guest->socket.peer(),
                      fmt::format("rank {} is here already", hello.rank));
        continue;
      }
      guest->socket.set_peer(RankName(hello.rank, size()));
      place = *std::move(guest);
    }
  }

  // The others. Without a listener they open one on the way to rank 0.
  Status MeetRankZero(std::optional<Listener> listener) {
    const std::string zero =
        fmt::format("{} at {}:{}", RankName(0, size()), info_.host, info_.port);
    Socket socket;
    while (!socket.connected()) {
      // Of a part, or of an elastic job, rank 0 has listened before the others
      // were told where.
      Result<Socket> tried =
          Socket::Connect(info_.host, info_.port, patience_.next(),
                          /*awaits_listener=*/info_.job_ranks.empty());
      if (tried.ok()) {
        socket = *std::move(tried);
        continue;
      }
      // A name may be of a host that comes up later: a pod of Kubernetes'.
      const bool named = tried.status().code() != Code::kNotFound;
      const Deadline now = std::chrono::steady_clock::now();
      if (now >= patience_.next()) {
        SLUICE_RETURN_IF_ERROR(patience_.Waited(
            named ? zero
                  : fmt::format("{}: {}", zero, tried.status().message())));
      } else if (named) {
        return tried.status().WithContext("no way to " + zero);
      } else {
        std::this_thread::sleep_until(
            std::min(now + kNameAgain, patience_.next()));
      }
    }
    socket.set_peer(RankName(0, size()));
    if (tls_ != nullptr) {
      SLUICE_RETURN_IF_ERROR(
          socket.AwaitTls(*tls_, TlsSide::kConnects, deadline_));
    }
    SLUICE_RETURN_IF_ERROR(CheckReached(socket, 0));
    if (listener) {
      SLUICE_ASSIGN_OR_RETURN(const Address own,
                              LocalAddressOf(listener->descriptor()));
      hello_.address = HostOf(own);
    } else {
      SLUICE_ASSIGN_OR_RETURN(hello_.address, socket.LocalAddress());
      SLUICE_ASSIGN_OR_RETURN(listener,
                              Listener::Open(hello_.address, info_.own_port));
    }
    hello_.port = listener->port();
    OpenDoor(*std::move(listener));
    SLUICE_RETURN_IF_ERROR(SendHello(hello_, socket, deadline_));
    SLUICE_RETURN_IF_ERROR(HearPlaces(socket));
    control_.push_back(std::move(socket));
    return {};
  }

  Status HearPlaces(Socket& socket) {
    Patience answer(RankName(info_.rank, size()), deadline_ + kForAnswer,
                    note_);
    while (!socket.AwaitReadable(answer.next())) {
      SLUICE_RETURN_IF_ERROR(answer.Waited(
          fmt::format("{} to have heard from all", socket.peer())));
    }
    std::array<std::byte, kFrameBytes> header;
    SLUICE_RETURN_IF_ERROR(socket.Receive(header, After(kForAnswer)));
    SLUICE_ASSIGN_OR_RETURN(const Frame frame, Decode(header));
    const size_t bytes = static_cast<size_t>(size()) * kPlaceBytes;
    if (frame.kind != FrameKind::kPeers || frame.bytes != bytes) {
      return ReceiveErrorBehind(frame, socket, After(kForAnswer));
    }
    std::vector<std::byte> payload(bytes);
    SLUICE_RETURN_IF_ERROR(socket.Receive(payload, After(kForAnswer)));
    epoch_ = frame.epoch;
    SLUICE_ASSIGN_OR_RETURN(places_, PlacesOf(payload));
    return {};
  }

  // What has been said so far on the way to rank 0 is from now on followed by
  // words of membership. Rank 0 has one to itself.
  Status Enter(LeaseTimes times, Links* links) {
    links->epoch = epoch_;
    Pipe wakes = OpenPipe(O_NONBLOCK);
    Pipe ends_it = OpenPipe(O_NONBLOCK);
    if (!wakes.open() || !ends_it.open()) {
      return Unavailable(fmt::format("pipe: {}", std::strerror(errno)));
    }
    if (info_.rank == 0) {
      std::array<int, 2> ends = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) < 0) {
        return Unavailable(fmt::format("socketpair: {}", std::strerror(errno)));
      }
      control_[0] = Socket(ends[0]);
      hosts_[0] = info_.node.empty() ? links->address : info_.node;
      const bool one_host =
          std::all_of(places_.begin(), places_.end(),
                      [](const Place& place) { return place.host == 0; });
      if (one_host) hosts_.clear();
      links->coordinator = std::make_unique<Coordinator>(
          std::exchange(control_, {}), std::move(hosts_), epoch_, times,
          std::move(ends_it), note_);
      control_.emplace_back(ends[1]);
    }
    links->membership =
        std::make_unique<Membership>(std::move(control_[0]), info_.rank, size(),
                                     epoch_, times, std::move(wakes));
    return {};
  }

  // A connection to another rank, on its way.
  struct Outgoing {
    int rank;
    Lane lane;
    Socket socket;
    bool told = false;  // who this is
  };

  // A listening socket takes connections before its process does, but a
  // handshake needs both: each rank has all of its connections under way at
  // once, to and from, or all would wait in a circle.
  Result<Links> Connect(Plan plan) {
    Links links;
    links.plan = std::move(plan);
    std::vector<Outgoing> outgoing;
    const Status connected = ConnectAll(links, outgoing);
    // With all connections open: who misses one shall know why.
    if (!connected.ok()) {
      return GiveUp(control_, info_.rank, size(), epoch_, connected);
    }
    for (Outgoing& one : outgoing) {
      SocketOf(links.to, one.rank, one.lane) = std::move(one.socket);
    }
    return links;
  }

  Status ConnectAll(Links& links, std::vector<Outgoing>& outgoing) {
    links.to.resize(places_.size());
    links.from.resize(places_.size());
    std::vector<int> to = links.plan.Partners(), from = to;
    to.push_back((info_.rank + 1) % size());
    from.push_back((info_.rank + size() - 1) % size());
    for (const int rank : std::set<int>(to.begin(), to.end())) {
      for (const Lane lane : {Lane::kData, Lane::kPulse}) {
        SLUICE_ASSIGN_OR_RETURN(Socket socket, Call(rank));
        outgoing.push_back({rank, lane, std::move(socket)});
      }
    }
    std::set<int> missing(from.begin(), from.end());
    while (true) {
      if (AnyGone(control_)) return Unavailable("one has ended");
      SLUICE_RETURN_IF_ERROR(Apart());
      std::vector<pollfd> polled = EndsOf(control_);
      polled.push_back({apart_, POLLIN, 0});
      std::set<int> waited = missing;
      for (Outgoing& one : outgoing) {
        SLUICE_RETURN_IF_ERROR(Proceed(one));
        if (one.told) continue;
        waited.insert(one.rank);
        polled.push_back(
            {one.socket.descriptor(), one.socket.handshake_events(), 0});
      }
      if (waited.empty()) return {};
      Result<Guest> guest = door_->Admit(patience_.next(), polled);
      if (guest.ok()) {
        TakeIn(*std::move(guest), links, missing);
      } else if (guest.status().code() == Code::kDeadlineExceeded) {
        SLUICE_RETURN_IF_ERROR(
            patience_.Waited(RankNames<int>({waited.begin(), waited.end()})));
      } else if (guest.status().code() != Code::kCancelled) {
        return guest.status();
      }
    }
  }

  static Socket& SocketOf(std::vector<Wire>& wires, int rank, Lane lane) {
    Wire& wire = wires[static_cast<size_t>(rank)];
    return lane == Lane::kData ? wire.data : wire.pulse;
  }

  Result<Socket> Call(int rank) {
    const std::string name = RankName(rank, size());
    Place place = places_[static_cast<size_t>(rank)];
    if (rank == 0) place = {info_.host, info_.port};
    // It has listened since before its hello.
    Result<Socket> socket = Socket::Connect(
        place.address, place.port, deadline_, /*awaits_listener=*/false);
    if (!socket.ok()) return socket.status().WithContext("no way to " + name);
    socket->set_peer(name);
    if (tls_ != nullptr) {
      SLUICE_RETURN_IF_ERROR(socket->StartTls(*tls_, TlsSide::kConnects));
    }
    return socket;
  }

  // As far as it goes without waiting.
  Status Proceed(Outgoing& one) {
    if (one.told) return {};
    if (tls_ != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(const bool done, one.socket.Handshake());
      if (!done) return {};
    }
    SLUICE_RETURN_IF_ERROR(CheckReached(one.socket, one.rank));
    hello_.lane = one.lane;
    one.told = true;
    return SendHello(hello_, one.socket, deadline_);
  }

  // Of who has been reached, before it is told anything: its certificate or,
  // without credentials, its place on this host.
  Status CheckReached(const Socket& socket, int rank) const {
    if (tls_ == nullptr) {
      return plaintext_ ? Status::Ok() : RequireLoopback(socket);
    }
    const Identity& shown = socket.peer_identity();
    if (shown.role == kWorkerRole && shown.rank == info_.JobRank(rank)) {
      return {};
    }
    return Unavailable(
        fmt::format("where {} should be is {} by its certificate",
                    RankName(rank, size()), shown.Name()));
  }

  // Those who are missing are so until both of their connections are here.
  void TakeIn(Guest guest, Links& links, std::set<int>& missing) {
    const int rank = guest.hello.rank;
    const Lane lane = guest.hello.lane;
    if (missing.count(rank) == 0 || lane == Lane::kForming ||
        SocketOf(links.from, rank, lane).connected()) {
      door_->Refuse(guest.socket.peer(),
                    fmt::format("rank {} has no business here", rank));
      return;
    }
    guest.socket.set_peer(RankName(rank, size()));
    SocketOf(links.from, rank, lane) = std::move(guest.socket);
    const Wire& wire = links.from[static_cast<size_t>(rank)];
    if (wire.data.connected() && wire.pulse.connected()) missing.erase(rank);
  }

  const LaunchInfo& info_;
  const int apart_;
  const std::shared_ptr<const Tls> tls_;  // null: without encryption
  const bool plaintext_;                  // also to other hosts
  const Deadline deadline_;
  const Note& note_;
  Patience patience_;
  Hello hello_;
  // Rank 0's to the others, by rank; another's to rank 0.
  std::vector<Socket> control_;
  std::vector<Place> places_;  // of all, by rank
  // Rank 0's, for people: by rank, the names of hosts or their addresses.
  std::vector<std::string> hosts_;
  uint32_t epoch_;
  std::optional<Door> door_;
};

}  // namespace

Result<Links> FormRing(const LaunchInfo& info, const GroupOptions& options,
                       int apart) {
  const Deadline deadline = After(options.join_timeout);
  std::optional<Listener> listener;
  if (info.listen_fd >= 0) {
    listener.emplace(info.listen_fd);
  } else if (info.rank == 0) {
    if (info.local_size < info.size) {
      SLUICE_RETURN_IF_ERROR(CheckNamesHost(info.host));
    }
    SLUICE_ASSIGN_OR_RETURN(listener, Listener::Open(info.host, info.port));
  }
  if (info.token.empty() && !info.credentials) {
    return InvalidArgument(fmt::format(
        "{} and the others know each other by nothing: set SLUICE_CERTIFICATES "
        "(a folder) or SLUICE_TOKEN_FILE (of 32 to 64 characters, for its "
        "owner's eyes)",
        RankName(info.rank, info.size)));
  }
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<const Tls> tls, OwnTls(info));
  const bool plaintext = info.allow_plaintext || options.allow_plaintext;
  if (listener && tls == nullptr && !plaintext) {
    SLUICE_RETURN_IF_ERROR(RequireLoopback(*listener, info.rank));
  }
  const milliseconds lease = LeaseOf(options.peer_timeout);
  const LeaseTimes times = {lease, std::max(lease, options.join_timeout),
                            options.stall_note};
  Forming forming(info, apart, std::move(tls), plaintext, deadline,
                  options.note);
  SLUICE_ASSIGN_OR_RETURN(
      Links links, forming.Run(std::move(listener), options.all_reduce, times));
  // Some may connect still, for whom the others wait from here on: where one of
  // those ends it is this membership that hears it.
  links.CutThen();
  Status shared = ShareMemory(info, options, deadline, &links);
  if (!shared.ok()) return links.Fail(std::move(shared));
  links.CutThen();  // where memory is shared, data's sockets are others
  return links;
}

}  // namespace sluice::dist
