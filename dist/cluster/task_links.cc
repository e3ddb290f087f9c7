// How a task's links come to be. Who connects does so twice, once for each way.
// On each stream it says hello (dist/collective/hello.h), which only tasks of
// the cluster can, and then who it is; the other says on the second who it is,
// and both agree on what the data goes through (dist/collective/sharing.h).
// Where there are certificates both have shown theirs first, and are who these
// say.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "dist/cluster/task.h"
#include "dist/collective/patience.h"
#include "dist/collective/sharing.h"
#include "dist/net/address.h"
#include "dist/net/local.h"
#include "engine/catch_errors.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;
// For what a peer says when it has connected.
constexpr milliseconds kIntroduction = std::chrono::seconds(5);
// How often who admits looks whether to stop.
constexpr milliseconds kLook(100);
// For the other half of a link: who connects begins it when it has shaken hands
// for the first, as have all others that come at the same time.
constexpr milliseconds kForOtherHalf = std::chrono::seconds(60);
// For a connection at least, however often there are to be lines.
constexpr milliseconds kConnect(100);
constexpr size_t kMostHalves = 8192;  // of as many tasks
// At a time; the others wait at the door.
constexpr size_t kMostAdmissions = 64;

Hello HelloWith(const std::string& token) {
  Hello hello;
  hello.token = token;
  hello.version = SLUICE_VERSION;
  hello.lane = Lane::kTask;
  return hello;
}

Status ByItsCertificate(const std::string& name, const Identity& shown) {
  if (TaskNameOf(shown) == name) return {};
  return Unavailable(fmt::format("where {} should be is {} by its certificate",
                                 name, TaskNameOf(shown)));
}

}  // namespace

std::string TaskNameOf(const Identity& identity) {
  return fmt::format("/job:{}/task:{}", identity.role, identity.rank);
}

Result<std::shared_ptr<const Tls>> Task::TlsOf(const TaskOptions& options) {
  if (options.stall_note <= milliseconds(0)) {
    return InvalidArgument(
        fmt::format("stall_note is {} ms, wanted a time above 0",
                    options.stall_note.count()));
  }
  if (!options.credentials) return std::shared_ptr<const Tls>();
  SLUICE_ASSIGN_OR_RETURN(auto tls, Tls::Create(*options.credentials));
  const std::string own = TaskNameOf(tls->identity());
  if (options.name.empty() || options.name == own) return tls;
  return InvalidArgument(
      fmt::format("this is {}, its certificate {}'s", options.name, own));
}

Result<int> Task::Listen(Listener listener) {
  if (options_.token.empty() && tls_ == nullptr) {
    return InvalidArgument(options_.name +
                           " listens to nobody without a token");
  }
  SLUICE_ASSIGN_OR_RETURN(const Address own,
                          LocalAddressOf(listener.descriptor()));
  if (tls_ == nullptr && !options_.allow_plaintext && !IsLoopback(own)) {
    return FailedPrecondition(
        fmt::format("{} is to listen at {}, beyond this host, and has no "
                    "credentials",
                    options_.name, HostOf(own)));
  }
  door_.emplace(std::move(listener), HelloWith(options_.token), tls_,
                options_.note);
  admits_ = std::thread([this] { Admit(); });
  return door_->port();
}

void Task::Admit() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stop_) break;
    }
    const bool full = admissions_.size() >= kMostAdmissions;
    Reap(full ? kLook : milliseconds(0));
    if (full) continue;
    Result<Guest> guest = door_->Admit(After(kLook));
    if (guest.status().code() == Code::kDeadlineExceeded) continue;
    if (guest.ok()) {
      Begin(*std::move(guest));
    } else {
      door_->Refuse("a task", guest.status().message());
      std::this_thread::sleep_for(kLook);  // it may be for want of files
    }
  }
  admissions_.clear();  // waits for them
}

void Task::Begin(Guest guest) {
  std::string who = guest.socket.peer();
  const Status begun = CatchErrors([&] {  // there may be no thread
    admissions_.push_back(
        {who, std::async(std::launch::async, [this, guest = std::move(
                                                        guest)]() mutable {
           return CatchErrors([&] { return AdmitOne(std::move(guest)); });
         })});
  });
  if (!begun.ok()) door_->Refuse(who, begun.message());
}

// Those that are over, for the first of which it waits so long.
void Task::Reap(milliseconds patience) {
  std::erase_if(admissions_, [&](Admission& one) {
    const auto waited = one.done.wait_for(std::exchange(patience, {}));
    if (waited != std::future_status::ready) return false;
    const Status admitted = one.done.get();
    if (!admitted.ok()) door_->Refuse(one.who, admitted.message());
    return true;
  });
}

Status Task::AdmitOne(Guest guest) {
  const Deadline deadline = After(kIntroduction);
  SLUICE_ASSIGN_OR_RETURN(const Introduction who,
                          HearOf(guest.socket, deadline));
  if (tls_ != nullptr) {
    SLUICE_RETURN_IF_ERROR(
        ByItsCertificate(who.task, guest.socket.peer_identity()));
  }
  if (who.to) {
    MutexLock lock(mutex_);
    const Deadline now = std::chrono::steady_clock::now();
    std::erase_if(halves_, [&](const Half& one) { return one.until < now; });
    if (halves_.size() >= kMostHalves) halves_.erase(halves_.begin());
    halves_.push_back(
        {who.task, who.number, std::move(guest.socket), now + kForOtherHalf});
    half_came_.NotifyAll();
    return {};
  }
  SLUICE_ASSIGN_OR_RETURN(Socket from, HalfOf(who, deadline));
  const Deadline answered = After(kIntroduction);
  SLUICE_RETURN_IF_ERROR(
      Introduce(guest.socket, {options_.name, who.number, false}, answered));
  return Join(who.task, std::move(guest.socket), std::move(from), /*rank=*/1,
              answered)
      .status();
}

Result<Socket> Task::HalfOf(const Introduction& who, Deadline deadline) {
  MutexLock lock(mutex_);
  while (!stop_) {
    const auto half =
        std::find_if(halves_.begin(), halves_.end(), [&](const Half& one) {
          return one.task == who.task && one.number == who.number;
        });
    if (half != halves_.end()) {
      Socket from = std::move(half->socket);
      halves_.erase(half);
      return from;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return FailedPrecondition(who.task + " has sent half of a link");
    }
    half_came_.WaitUntil(mutex_, deadline);
  }
  return Cancelled(options_.name + " is about to end");
}

Status Task::Introduce(Socket& socket, const Introduction& who,
                       Deadline deadline) {
  return SendText(FrameKind::kCall, 0, who.ToText(), 0, socket, deadline);
}

Result<Introduction> Task::HearOf(Socket& socket, Deadline deadline) {
  SLUICE_ASSIGN_OR_RETURN(const Frame frame, ReceiveHeader(socket, deadline));
  if (frame.kind != FrameKind::kCall) {
    return DataLoss(socket.peer() + " has not said who it is");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReceiveText(frame, socket, deadline));
  return Introduction::Parse(text);
}

// Both sides do this at once, as the two ranks of a ring.
Result<Task::LinkPtr> Task::Join(std::string peer, Socket to, Socket from,
                                 int rank, Deadline deadline) {
  to.set_peer(peer);
  from.set_peer(peer);
  WirePair wires;
  wires.to.data = std::move(to);
  wires.from.data = std::move(from);
  LaunchInfo info;
  info.rank = info.local_rank = rank;
  info.size = info.local_size = 2;
  GroupOptions sharing;
  sharing.transport = options_.transport;
  SLUICE_RETURN_IF_ERROR(
      ShareMemory(info, sharing, deadline, &wires).WithContext(peer));
  BuryEnded();
  auto link = std::make_shared<Link>(std::move(wires), std::move(peer),
                                     options_.peer_timeout, *this);
  MutexLock lock(mutex_);
  if (stop_) return Cancelled(options_.name + " is about to end");
  // Its threads find it here. One that has none is not known to anybody.
  links_.push_back(link);
  const Status started = link->Start();
  if (started.ok()) return link;
  links_.pop_back();
  return started;
}

Task::LinkPtr Task::Find(const std::string& name) const {
  MutexLock lock(mutex_);
  return Living(name);
}

Task::LinkPtr Task::Living(const std::string& name) const {
  for (auto link = links_.rbegin(); link != links_.rend(); ++link) {
    if ((*link)->peer() == name && (*link)->status().ok()) return *link;
  }
  return nullptr;
}

// Before it is told anything.
Status Task::CheckReached(const Socket& socket, const std::string& name) const {
  if (tls_ != nullptr) return ByItsCertificate(name, socket.peer_identity());
  SLUICE_ASSIGN_OR_RETURN(const Address peer,
                          PeerAddressOf(socket.descriptor()));
  if (options_.allow_plaintext || IsLoopback(peer)) return {};
  return FailedPrecondition(
      fmt::format("{} is not this host, and there are no credentials to go "
                  "there encrypted",
                  HostOf(peer)));
}

Result<Task::LinkPtr> Task::Reach(const ClusterTask& task, Deadline deadline,
                                  bool awaits_listener) {
  const MutexLock lock(connect_mutex_);
  // It is heard of once it is one of the other's, too, who may have begun it.
  const auto here = [this](const LinkPtr& link) {
    return Call(link, {kHere, {}}).status();
  };
  if (LinkPtr link = Find(task.name)) {
    Status heard = here(link);
    if (heard.ok()) return link;
    // Of one whose end had not been seen yet there is to be another.
    if (link->status().ok() || std::chrono::steady_clock::now() >= deadline) {
      return heard;
    }
    const MutexLock look(mutex_);
    if (stop_) return heard;  // by which it has ended
  }
  Result<LinkPtr> made = Connect(task, deadline, awaits_listener);
  if (!made.ok()) return made.status().WithContext(task.name);
  SLUICE_RETURN_IF_ERROR(here(*made));
  return made;
}

Result<Socket> Task::Dial(const ClusterTask& task, Deadline deadline,
                          bool awaits_listener) {
  Patience patience(options_.name, deadline, options_.note,
                    options_.stall_note);
  while (true) {
    Result<Socket> socket = Socket::Connect(
        task.host, task.port,
        std::min(deadline, std::max(patience.next(), After(kConnect))),
        awaits_listener);
    if (socket.status().code() != Code::kDeadlineExceeded) return socket;
    const Status waited = patience.Waited(
        fmt::format("{} at {}", task.name, HostAndPort(task.host, task.port)));
    if (!waited.ok()) return socket;  // which says what is wrong there
  }
}

Result<Task::LinkPtr> Task::Connect(const ClusterTask& task, Deadline deadline,
                                    bool awaits_listener) {
  SLUICE_ASSIGN_OR_RETURN(const std::string number, RandomWord());
  const auto half = [&](bool to) -> Result<Socket> {
    SLUICE_ASSIGN_OR_RETURN(Socket socket,
                            Dial(task, deadline, awaits_listener));
    if (tls_ != nullptr) {
      SLUICE_RETURN_IF_ERROR(
          socket.AwaitTls(*tls_, TlsSide::kConnects, After(kIntroduction)));
    }
    SLUICE_RETURN_IF_ERROR(CheckReached(socket, task.name));
    SLUICE_RETURN_IF_ERROR(
        SendHello(HelloWith(options_.token), socket, After(kIntroduction)));
    SLUICE_RETURN_IF_ERROR(
        Introduce(socket, {options_.name, number, to}, After(kIntroduction)));
    return socket;
  };
  SLUICE_ASSIGN_OR_RETURN(Socket to, half(true));
  SLUICE_ASSIGN_OR_RETURN(Socket from, half(false));
  const Deadline answered = After(kIntroduction);
  SLUICE_ASSIGN_OR_RETURN(const Introduction other, HearOf(from, answered));
  if (other.task != task.name) {
    return FailedPrecondition(
        fmt::format("at {}:{} there is {}", task.host, task.port, other.task));
  }
  return Join(task.name, std::move(to), std::move(from), /*rank=*/0, answered);
}

}  // namespace sluice::dist
