// Sending and receiving at once, whatever the bytes go through.
#ifndef SLUICE_DIST_NET_EXCHANGE_H_
#define SLUICE_DIST_NET_EXCHANGE_H_

#include <poll.h>

#include <functional>
#include <string>

#include "dist/net/descriptor.h"
#include "engine/status.h"

namespace sluice::dist {

class Socket;

// One direction of an exchange: bytes of one peer that are still to be moved.
// One thread at a time. Errors name the peer and end the exchange.
class Direction {
 public:
  Direction() = default;
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;
  virtual ~Direction() = default;

  // Whether there is nothing left to be moved.
  virtual bool done() const = 0;
  // Moves what can be moved now, or a part of it; returns whether that was
  // anything.
  virtual Result<bool> Try() = 0;
  // What to poll for where nothing can be moved.
  virtual pollfd Park() = 0;
  // Whether the poll says nothing of what has become possible before Park: the
  // caller must then Try once more after Park.
  virtual bool looks_again() const { return false; }
  // To be called after the poll, with what it found.
  virtual Status Woken(short events) = 0;
  // A socket by which the peer's process sends something a few times a second,
  // whatever it does, or null.
  virtual const Socket* pulse() const { return nullptr; }
  // What is missing when time is up.
  virtual std::string Late() const = 0;
};

// Decides whether to try again for a while before a sleep, from how that went
// lately: spinning keeps a core busy on which the peer may have to run.
class Spin {
 public:
  // Calls `look` again and again for as long as a sleep and its end take, or,
  // where that was of no use lately, not at all; returns whether it has found
  // anything.
  Result<bool> Look(const std::function<Result<bool>()>& look);

 private:
  bool Worthwhile() { return misses_ < kMost || ++skipped_ % kAgain == 0; }

  static constexpr int kMost = 4;         // that fail, one after another
  static constexpr unsigned kAgain = 64;  // sleeps later it may be otherwise
  int misses_ = 0;
  unsigned skipped_ = 0;
};

// Moves all of both directions: whoever waits for a peer to take bytes still
// takes those that another sends. kDeadlineExceeded where they are not done in
// time, and a peer that is waited for does not even show its pulse; where all
// do, they are given as much time again, however often. `spin` is of the same
// two peers' earlier exchanges; null: it sleeps at once.
Status Exchange(Direction& out, Direction& in, Deadline deadline,
                Spin* spin = nullptr);

}  // namespace sluice::dist

#endif  // SLUICE_DIST_NET_EXCHANGE_H_
