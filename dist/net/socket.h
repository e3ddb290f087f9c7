// TCP streams between the processes of a job, encrypted or not, with a limit on
// every wait.
#ifndef SLUICE_DIST_NET_SOCKET_H_
#define SLUICE_DIST_NET_SOCKET_H_

#include <sys/uio.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/net/descriptor.h"
#include "dist/net/tls.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

struct Address;  // dist/net/address.h

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// A connected stream, closed with its owner. Movable; one thread at a time, but
// that one may TrySend while another receives.
// Errors name peer(): kUnavailable where the stream has ended or failed,
// kDeadlineExceeded with how many bytes were done. After an error the stream is
// somewhere inside what was sent or received, and only good for being closed.
// No signal is raised where the peer is gone (SIGPIPE).
class Socket {
 public:
  Socket() = default;               // not connected
  explicit Socket(int descriptor);  // takes it: a stream's

  // Connects to a host's name or address. Tries again until the deadline where
  // nobody listens yet; without `awaits_listener` that is kUnavailable at once.
  // A name is looked up by the system, which knows no deadline. kNotFound where
  // there is no such host.
  static Result<Socket> Connect(const std::string& host, int port,
                                Deadline deadline, bool awaits_listener = true);
  // The same, to the first of a host's addresses, at least one, that takes it;
  // `where` is the host in messages. It waits while any of them may yet do so,
  // but for a refusal, which is the host's, not one address's.
  static Result<Socket> ConnectToAny(const std::vector<Address>& addresses,
                                     const std::string& where,
                                     Deadline deadline, bool awaits_listener);

  bool connected() const { return descriptor_.get() >= 0; }
  int descriptor() const { return descriptor_.get(); }
  // The peer's name in messages: its address until set_peer ("rank 3").
  const std::string& peer() const { return peer_; }
  void set_peer(std::string name) { peer_ = std::move(name); }
  // Address of this end as its peer sees it, without the port.
  Result<std::string> LocalAddress() const;

  // Encrypts the stream; to be called before any byte is sent. StartTls does
  // not wait; each Handshake then does a step and returns whether the handshake
  // is done, else handshake_events() is what to poll for. AwaitTls does it all.
  // A fault of the peer's is kUnavailable.
  Status StartTls(const Tls& tls, TlsSide side);
  Result<bool> Handshake();
  short handshake_events() const { return tls_->events(); }
  Status AwaitTls(const Tls& tls, TlsSide side, Deadline deadline);
  bool encrypted() const { return tls_ != nullptr; }
  // The identity in the peer's certificate, once the handshake is done.
  const Identity& peer_identity() const { return tls_->peer(); }

  // Moves what can be moved now, from the first piece on; returns the bytes, 0
  // where none can be. What was not sent must be sent next.
  Result<size_t> TrySend(std::span<const iovec> pieces) const;
  Result<size_t> TryReceive(std::span<const iovec> pieces) const;
  // Waits until there is something to receive, or the stream's end; false where
  // the deadline passes before.
  bool AwaitReadable(Deadline deadline) const;

  // Send or receive all of the bytes, the pieces one behind another. That bytes
  // are sent does not say that the peer has read them.
  Status Send(std::span<const Bytes> pieces, Deadline deadline);
  Status Send(Bytes bytes, Deadline deadline) {
    return Send({&bytes, 1}, deadline);
  }
  Status Receive(MutableBytes bytes, Deadline deadline);

 private:
  Status Named(const Status& error) const;

  Descriptor descriptor_;
  std::unique_ptr<TlsSession> tls_;
  std::string peer_;
};

// Sends to one socket and receives from another, or the same, at once: whoever
// waits for a peer to take bytes still takes those that it sends. The pieces of
// `in` must not overlap those of `out`. The first error of either ends both.
Status Exchange(Socket& to, std::span<const Bytes> out, Socket& from,
                std::span<const MutableBytes> in, Deadline deadline);

// A socket that peers connect to. Movable.
class Listener {
 public:
  // Listens on a port, or, for 0, one of the system's choice. "127.0.0.1" is
  // for this host alone; of a name's addresses ToListenAt chooses. A port that
  // a process that is gone has used can be had at once.
  static Result<Listener> Open(const std::string& address, int port = 0);
  // As Open, but on any other port where that one is not to be had; `note`,
  // which may be empty, is told so in a line.
  static Result<Listener> OpenPreferring(
      const std::string& address, int port,
      const std::function<void(std::string_view)>& note);
  explicit Listener(int descriptor);  // takes it: one that listens

  int descriptor() const { return descriptor_.get(); }
  int Release() { return descriptor_.Release(); }
  int port() const { return port_; }
  // Accepts the next connection, whoever makes it. kDeadlineExceeded where
  // nobody does, kResourceExhausted where this process has too many files open.
  Result<Socket> Accept(Deadline deadline);

 private:
  Descriptor descriptor_;
  int port_ = 0;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_SOCKET_H_
