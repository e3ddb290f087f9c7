// TLS 1.3 between the processes of a job, each of which shows a certificate of
// the job's authority (credentials.h).
#ifndef SLUICE_DIST_NET_TLS_H_
#define SLUICE_DIST_NET_TLS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dist/net/credentials.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// Whether this build has TLS (OpenSSL 3).
bool HasTls();

// A process's own credentials, ready for use. Threads may share it.
class Tls {
 public:
  // kInvalidArgument where they are no credentials, do not belong together or
  // have expired; kUnimplemented in a build without OpenSSL.
  static Result<std::shared_ptr<const Tls>> Create(
      const Credentials& credentials);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // The identity in this process's own certificate, and when that expires.
  const Identity& identity() const { return identity_; }
  std::chrono::system_clock::time_point expires() const { return expires_; }

 private:
  friend class TlsSession;
  struct Impl;
  Tls();

  std::unique_ptr<Impl> impl_;
  Identity identity_;
  std::chrono::system_clock::time_point expires_;
};

enum class TlsSide { kConnects, kListens };

// The TLS of one connection. A thread may send while another receives.
class TlsSession {
 public:
  // `descriptor`: a connected stream that does not block and outlives the
  // session.
  static Result<std::unique_ptr<TlsSession>> Create(const Tls& tls,
                                                    TlsSide side,
                                                    int descriptor);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // None of the calls below waits. Their errors are without the peer's name:
  // kUnavailable "closed" where the peer has closed, else what is wrong.

  // Does a step of the handshake; returns whether it is done and the peer shown
  // to be of this job. If not, events() is what to poll for.
  Result<bool> Handshake();
  short events() const;
  // The identity in the peer's certificate, after the handshake.
  const Identity& peer() const { return peer_; }

  // Return the bytes taken, or received; 0 where none can be now. What was not
  // taken must be given again.
  Result<size_t> Send(std::span<const std::byte> bytes);
  Result<size_t> Receive(std::span<std::byte> bytes);
  // Whether bytes have come that Receive gives before the stream is readable
  // again.
  bool pending() const;

 private:
  struct Impl;
  TlsSession();
  Status Failure(int returned) REQUIRES(mutex_);
  Status CheckPeer() REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<Impl> impl_ PT_GUARDED_BY(mutex_);
  Identity own_, peer_;
};

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_TLS_H_
