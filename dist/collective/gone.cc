#include "dist/collective/gone.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "dist/membership/control.h"
#include "dist/membership/rank_name.h"
#include "dist/net/descriptor.h"

namespace sluice::dist {
namespace {

// For rank 0 to be through with what it is at.
constexpr std::chrono::milliseconds kForVerdict(2000);

// Ok where none of the words has one.
Status ReasonIn(const std::vector<ControlMessage>& words) {
  const auto reason = std::find_if(
      words.begin(), words.end(),
      [](const ControlMessage& word) { return !word.reason.ok(); });
  return reason == words.end() ? Status::Ok() : reason->reason;
}

// Why a rank has ended, in its words, or ok. All of them have come. It is heard
// up to these: it may wait for an answer, and of TLS the end of what can be
// read is that of what can be sent.
Status SaidOn(const Socket& socket, int size) {
  ControlReader reader(size);
  std::vector<ControlMessage> words;
  std::array<char, 4096> bytes;
  const iovec room = {bytes.data(), bytes.size()};
  while (true) {
    const Result<size_t> n = socket.TryReceive({&room, 1});
    const bool more =
        n.ok() && *n > 0 && reader.Add({bytes.data(), *n}, &words).ok();
    const Status reason = ReasonIn(words);
    if (!more || !reason.ok()) return reason;
  }
}

// Ok where none has ended. Closes those that have without a word.
Status WhyGone(std::vector<Socket>& control, int size) {
  std::vector<pollfd> polled = EndsOf(control);
  (void)Wait(polled, Deadline());
  Status silent, said;
  for (size_t rank = 0; rank < control.size(); ++rank) {
    if (polled[rank].revents == 0) continue;
    Status reason = SaidOn(control[rank], size);
    if (!reason.ok()) {
      if (said.ok()) said = std::move(reason);
      continue;
    }
    control[rank] = Socket();
    if (!silent.ok()) continue;
    silent = Unavailable(fmt::format("{} has ended while they connect",
                                     RankName(static_cast<int>(rank), size)));
  }
  // Those that spoke may have ended for the others' sake.
  return silent.ok() ? said : silent;
}

// What rank 0 says when it has been told; else `otherwise`.
Status VerdictOf(Socket zero, int size, const Status& otherwise) {
  shutdown(zero.descriptor(), SHUT_WR);  // the end that it looks for
  const Deadline limit = After(kForVerdict);
  ControlChannel channel(std::move(zero), size);
  std::vector<ControlMessage> words;
  while (true) {
    const bool open = channel.Move(&words).ok();
    const Status verdict = ReasonIn(words);
    if (!verdict.ok()) return verdict;
    pollfd readable = channel.Wanted();
    if (!open || Wait({&readable, 1}, limit) <= 0) return otherwise;
  }
}

}  // namespace

std::vector<pollfd> EndsOf(std::span<const Socket> sockets) {
  std::vector<pollfd> polled;
  for (const Socket& socket : sockets) {
    polled.push_back({socket.descriptor(), POLLRDHUP, 0});
  }
  return polled;
}

bool AnyGone(std::span<const Socket> sockets) {
  std::vector<pollfd> polled = EndsOf(sockets);
  return Wait(polled, Deadline()) > 0;
}

// As members and the coordinator do: who has begun to listen hears it, too.
Status GiveUp(std::vector<Socket>& control, int rank, int size, uint32_t epoch,
              const Status& why) {
  const Status gone = WhyGone(control, size);
  ControlMessage message;
  message.kind = rank == 0 ? FrameKind::kVerdict : FrameKind::kError;
  message.rank = rank;
  message.epoch = epoch;
  message.reason = gone.ok() ? why : gone;
  const std::string bytes = Encoded(message);
  Status known = message.reason;
  for (Socket& socket : control) {
    if (!socket.connected()) continue;
    (void)socket.Send(std::as_bytes(std::span(bytes)), After(kToTell)).ok();
    if (rank != 0 && gone.ok()) {
      known = VerdictOf(std::move(socket), size, message.reason);
    }
  }
  control.clear();
  return known;
}

}  // namespace sluice::dist
