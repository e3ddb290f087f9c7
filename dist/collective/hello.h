// The hello, which is the first frame of a connection between the processes of
// a job and says who connects, and the door at which strangers are refused.
//
// The payload is of fixed size, texts padded with zeros:
//
//   offset  size
//        0    64  token    what the processes of the job know
//       64    32  version  of Sluice
//       96    64  address  of the sender, as others reach it
//      160     4  port     where it listens, little-endian
//      164     1  lane     what the connection is for
//      165     1  all-reduce   Algorithm of options.h
//      166     2  zeros
//      168    64  node     which host the sender is on; empty: by its address
//
// The frame's rank is the sender's, its count the size of its group, its epoch
// that of the membership and its key the group's: a port that is opened for one
// group after another hears also those who still knock for the one before.
#ifndef SLUICE_DIST_COLLECTIVE_HELLO_H_
#define SLUICE_DIST_COLLECTIVE_HELLO_H_

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/collective/options.h"
#include "dist/net/frame.h"
#include "dist/net/socket.h"
#include "dist/net/tls.h"
#include "engine/status.h"

namespace sluice::dist {

// What a connection is for. A kForming connection is, once all ranks are there,
// that of membership (control.h). kTask is for a cluster's tasks, which have no
// ranks and say who they are next (dist/cluster/task_links.cc).
enum class Lane : uint8_t { kForming, kData, kPulse, kTask };

struct Hello {
  int rank = 0;
  int size = 1;
  uint32_t epoch = 1;  // of the membership
  uint64_t group = 0;  // Key() of LaunchInfo::group; 0: the job
  Lane lane = Lane::kForming;
  std::string token;    // up to 64 bytes
  std::string version;  // up to 32
  std::string address;  // up to 64
  int port = 0;
  Algorithm all_reduce = Algorithm::kAuto;
  std::string node;  // up to 64
};

// A hello as bytes, and back. DecodeHello takes any bytes and checks only that
// they make sense: kDataLoss.
inline constexpr size_t kHelloBytes = kFrameBytes + 232;
using HelloPacket = std::array<std::byte, kHelloBytes>;
Result<HelloPacket> EncodeHello(const Hello& hello);
Result<Hello> DecodeHello(const HelloPacket& packet);

Status SendHello(const Hello& hello, Socket& to, Deadline deadline);

struct Guest {
  Hello hello;
  Socket socket;
};

// Lets in who says hello with the token of the job, for its group, behind a
// handshake of TLS where this process has credentials: then with the
// certificate of the rank that it says it is, but for tasks. Strangers are
// refused without a word: those of another token, certificate, membership,
// group or size, those that send anything else, or not all of a handshake and a
// hello within 2 s. All that wait at the door are heard at once, up to 16, so
// that a silent one holds nobody up.
class Door {
 public:
  // `own` is this process's hello: where it is a task's, others' must be, too.
  // `tls` may be null. `note` is told of refusals, a line a second at most, and
  // may be empty. `certified` is the rank of whose certificate a rank of the
  // hellos shows; null: its own.
  Door(Listener listener, Hello own, std::shared_ptr<const Tls> tls,
       std::function<void(std::string_view)> note,
       std::function<int(int rank)> certified = nullptr);

  int port() const { return listener_.port(); }
  // Waits for the next guest. kDeadlineExceeded where nobody comes;
  // kFailedPrecondition where a process of this job has another version of
  // Sluice; kCancelled where a descriptor of `also` is ready first.
  Result<Guest> Admit(Deadline deadline, std::span<const pollfd> also = {});
  // Says that a guest was sent away, and why.
  void Refuse(std::string_view who, std::string_view why);

 private:
  struct Waiting {
    Socket socket;
    std::string name;  // its address
    Deadline until;
    HelloPacket packet{};
    size_t arrived = 0;
    bool greeted = false;  // the handshake is done, or there is none
  };

  // Waits until something happens at the door, or the deadline; kCancelled
  // where something happens in `also`.
  Status Watch(Deadline deadline, std::span<const pollfd> also);
  // Accepts those that have connected, as far as there is room.
  Status TakeIn();
  // Whether all of the guest's hello has come; the error says why it is
  // refused.
  Result<bool> Hear(Waiting& one) const;
  // What is wrong with a hello, in words, or nothing.
  std::string Objection(const Hello& hello, const Socket& from) const;

  Listener listener_;
  const Hello own_;
  const std::shared_ptr<const Tls> tls_;
  const std::function<void(std::string_view)> note_;
  const std::function<int(int rank)> certified_;
  std::vector<Waiting> waiting_;
  Deadline quiet_until_;  // no line about refusals before
  int unsaid_ = 0;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_COLLECTIVE_HELLO_H_
