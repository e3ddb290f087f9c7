#include "dist/membership/roster_member.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "dist/membership/membership.h"

namespace sluice::dist {
namespace {

constexpr char kLauncherGone[] =
    "the launcher, which keeps the job's roster, has ended";

}  // namespace

RosterMember::RosterMember(Descriptor socket, std::chrono::milliseconds silence)
    : socket_(std::move(socket)),
      beat_(BeatOf(silence)),
      ends_(OpenPipe()),
      apart_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  socket_.MakePrivateAndNonBlocking();
  thread_ = std::thread([this] { Run(); });
}

RosterMember::~RosterMember() {
  ends_.write = Descriptor();  // the other end hears it
  thread_.join();
}

void RosterMember::Run() {
  Deadline next = std::chrono::steady_clock::now();
  while (true) {
    if (std::chrono::steady_clock::now() >= next) {
      (void)Send("beat").ok();
      next = After(beat_);
    }
    std::array<pollfd, 2> polled = {pollfd{socket_.get(), POLLIN, 0},
                                    pollfd{ends_.read.get(), POLLIN, 0}};
    Wait(polled, next);
    if (polled[1].revents != 0) return;
    if (polled[0].revents != 0 && !Hear()) return;
  }
}

bool RosterMember::Hear() {
  std::vector<char> packet(kRosterBytes);
  const ssize_t bytes =
      recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (bytes > 0) {
    Take(std::string_view(packet.data(), static_cast<size_t>(bytes)));
    return true;
  }
  const MutexLock lock(mutex_);
  if (over_.ok()) over_ = Unavailable(kLauncherGone);
  changes_.NotifyAll();
  return false;
}

void RosterMember::Take(std::string_view packet) {
  constexpr std::string_view kEnd = "end ";
  const MutexLock lock(mutex_);
  if (packet == "call") {
    called_ = true;
  } else if (packet == "apart") {
    const uint64_t one = 1;
    (void)!write(apart_.get(), &one, sizeof one);
  } else if (packet.starts_with(kEnd)) {
    over_ = Unavailable(std::string(packet.substr(kEnd.size())));
  } else {
    Result<Assembly> next = ParseAssembly(packet);
    if (next.ok()) {
      uint64_t before = 0;  // what was said of another group
      (void)!read(apart_.get(), &before, sizeof before);
      next_ = *std::move(next);
    } else {
      over_ = next.status();
    }
  }
  changes_.NotifyAll();
}

Status RosterMember::Send(std::string_view packet) const {
  // It waits for nobody: a launcher that reads nothing has long been told.
  if (send(socket_.get(), packet.data(), packet.size(),
           MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
    return {};
  }
  return Unavailable(errno == EPIPE || errno == ECONNRESET
                         ? kLauncherGone
                         : fmt::format("the launcher cannot be told: {}",
                                       std::strerror(errno)));
}

Result<Assembly> RosterMember::Meet(const Meeting& meeting) {
  const MutexLock lock(mutex_);
  next_.reset();
  called_ = false;
  SLUICE_RETURN_IF_ERROR(over_);
  Status told = Send(Encoded(meeting));
  while (!told.ok() && over_.ok()) {
    // The socket is full of beats to a launcher that stands still.
    changes_.WaitUntil(mutex_, After(beat_));
    told = Send(Encoded(meeting));
  }
  while (!next_ && over_.ok()) changes_.Wait(mutex_);
  SLUICE_RETURN_IF_ERROR(over_);
  return *next_;
}

bool RosterMember::called() const {
  const MutexLock lock(mutex_);
  return called_;
}

}  // namespace sluice::dist
