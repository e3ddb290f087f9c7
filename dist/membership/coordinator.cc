#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "dist/membership/membership.h"

namespace sluice::dist {
namespace {

using std::chrono::milliseconds;

}  // namespace

Coordinator::Coordinator(std::vector<Socket> ranks,
                         std::vector<std::string> hosts, uint32_t epoch,
                         LeaseTimes times, Pipe ends,
                         std::function<void(std::string_view)> note)
    : epoch_(epoch),
      lease_(times.lease),
      leases_(static_cast<int>(ranks.size()), times.lease, times.first),
      stalls_(static_cast<int>(ranks.size()), times.stall, std::move(hosts)),
      note_(std::move(note)),
      ends_(std::move(ends)) {
  const int size = static_cast<int>(ranks.size());
  for (Socket& rank : ranks) {
    ranks_.emplace_back(std::move(rank), size);
    // Before anything that needs all ranks: then all have heard it.
    ranks_.back().Beat({.epoch = epoch_});
    (void)ranks_.back().Send().ok();
  }
  thread_ = std::thread([this] { Run(); });
}

Coordinator::~Coordinator() {
  ends_.write = Descriptor();  // the other end hears it
  thread_.join();
}

// Time counts as it passes between two rounds, and no round counts for more
// than two beats: where this process stood still, or had no core, the others
// are not to blame.
void Coordinator::Run() {
  const milliseconds beat = BeatOf(lease_);
  Deadline last = std::chrono::steady_clock::now();
  looked_ = stood_until_ = last;
  while (true) {
    std::vector<pollfd> polled = {{ends_.read.get(), POLLIN, 0}};
    for (const ControlChannel& rank : ranks_) {
      if (rank.open()) polled.push_back(rank.Wanted());
    }
    Wait(polled, last + beat);
    (void)Stood();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].open()) Hear(static_cast<int>(i));
    }
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= last + beat) {
      const milliseconds time = std::min(
          std::chrono::duration_cast<milliseconds>(now - last), 2 * beat);
      leases_.Pass(time);
      if (const auto line = stalls_.Pass(time); line && note_) note_(*line);
      last = now;
      for (ControlChannel& rank : ranks_) rank.Beat({.epoch = epoch_});
    }
    if (leases_.verdict() && !announced_) Announce();
    if (polled[0].revents != 0) break;
  }
  SayGoodbye();
}

// How long this process stood still, at most within about the last lease: what
// came meanwhile takes more rounds than one to hear. It may have anywhere, so
// this is to be asked behind what it is to explain.
milliseconds Coordinator::Stood() {
  const Deadline now = std::chrono::steady_clock::now();
  const auto gap = std::chrono::duration_cast<milliseconds>(now - looked_);
  looked_ = now;
  if (now >= stood_until_) stood_ = milliseconds(0);
  if (gap > stood_) {
    stood_ = gap;
    stood_until_ = now + lease_;
  }
  return stood_;
}

void Coordinator::Hear(int rank) {
  ControlChannel& channel = ranks_[static_cast<size_t>(rank)];
  std::vector<ControlMessage> words;
  const Status status = channel.Move(&words);
  for (ControlMessage& word : words) {
    leases_.Heard(rank);
    if (word.kind == FrameKind::kBeat) {
      stalls_.Heard(rank, word.run, std::move(word.waits_in));
    } else if (word.kind == FrameKind::kGoodbye) {
      leases_.Left(rank);
    } else if (word.kind == FrameKind::kSuspect) {
      leases_.Suspects(rank, word.whom, std::move(word.reason));
    } else if (word.kind == FrameKind::kError) {
      leases_.Failed(rank, std::move(word.reason));
    }
  }
  if (!status.ok()) leases_.Ended(rank, Stood());
}

void Coordinator::Announce() {
  announced_ = true;
  ControlMessage verdict;
  verdict.kind = FrameKind::kVerdict;
  verdict.epoch = epoch_ + 1;
  verdict.reason = *leases_.verdict();
  for (ControlChannel& rank : ranks_) {
    if (rank.open()) rank.Say(verdict);
  }
}

void Coordinator::SayGoodbye() {
  ControlMessage goodbye;
  goodbye.kind = FrameKind::kGoodbye;
  goodbye.epoch = epoch_;
  for (ControlChannel& rank : ranks_) {
    if (rank.open()) rank.Say(goodbye);
  }
  const Deadline limit = After(kToTell);
  while (true) {
    std::vector<pollfd> polled;
    for (ControlChannel& rank : ranks_) {
      std::vector<ControlMessage> ignored;
      if (!rank.open() || !rank.Move(&ignored).ok()) continue;
      if (!rank.flushed()) polled.push_back({rank.Wanted().fd, POLLOUT, 0});
    }
    if (polled.empty() || Wait(polled, limit) <= 0) return;
  }
}

}  // namespace sluice::dist
