// How a group (group.h) behaves, and what it computes.
#ifndef SLUICE_DIST_COLLECTIVE_OPTIONS_H_
#define SLUICE_DIST_COLLECTIVE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "engine/reduction.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {
namespace dist {

// How data gets from a rank to the next: through memory that they share, which
// takes processes of one host, or through TCP.
enum class Transport {
  kAuto,    // memory wherever it can be, TCP elsewhere
  kTcp,     // TCP to and from this rank
  kShared,  // memory, or joining fails
};

// Parses what users write: "auto", "tcp", "shared". kInvalidArgument for any
// other word.
Result<Transport> ParseTransport(std::string_view word);

// Whether reductions that a step starts go on beside what it computes, by a
// thread of the group's, or are done where the step waits for them.
enum class Overlap {
  kAuto,  // where that thread waits for a network, or has a core to itself
  kOn,
  kOff,
};

// Parses what users write: "auto", "on", "off". kInvalidArgument for any other
// word.
Result<Overlap> ParseOverlap(std::string_view word);

// How all-reduces are done (algorithms.h); all ranks of a job use rank 0's.
enum class Algorithm : uint8_t {
  kAuto,             // by size and hosts
  kRing,             // the fewest bytes, 2 (n - 1) steps
  kHalvingDoubling,  // the same bytes in 2 log2(n) steps, with more neighbours
  kHierarchical,     // on each host first, of which one process goes on
};

// Parses what users write: "auto", "ring", "halving-doubling", "hierarchical".
// kInvalidArgument for any other word.
Result<Algorithm> ParseAlgorithm(std::string_view word);

struct GroupOptions {
  // How long to wait for all processes to have come.
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60);
  // A process that shows no sign of life for so long, at least a second, is an
  // error of all others that names it. One that is alive is waited for, however
  // long it does something else: nobody can tell whether that ends. A neighbour
  // that moves less than a piece (256 KiB) of a collective within this time,
  // and is not heard by the way between the two for another second, though it
  // is alive, is an error of all that names both.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(60);
  // A process that keeps others waiting for so long in a collective is named by
  // a note of rank 0's, and again each time that as much more has passed.
  std::chrono::milliseconds stall_note = std::chrono::seconds(10);
  Transport transport = Transport::kAuto;
  Overlap overlap = Overlap::kAuto;
  // Must be the same for all processes, or joining fails and names two.
  Algorithm all_reduce = Algorithm::kAuto;
  // Whether processes without credentials may talk to other hosts, where
  // whoever is in between reads and changes what they say.
  bool allow_plaintext = false;
  // Whether a group that is broken is to be joined again: rank 0 goes on
  // listening for it.
  bool may_join_again = false;
  // Called each time that an elastic job's group is joined, with the rank that
  // this process now is. May be empty.
  std::function<void(int rank)> joined;
  // Called with lines without a newline: while joining, on who waits for whom
  // (every 10 s), which strangers were refused (at most a line a second), why
  // neighbours on one host cannot share memory, and where a part, or an elastic
  // job's process, listens whose port is not to be had; later, by another
  // thread, on who keeps others waiting. May be empty.
  std::function<void(std::string_view)> note;
};

using sluice::Reduction;

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_COLLECTIVE_OPTIONS_H_
