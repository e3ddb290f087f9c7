// The lock of a folder in an object store: an object that says who may write
// there and for how long.
#ifndef SLUICE_IO_REMOTE_S3_LEASE_H_
#define SLUICE_IO_REMOTE_S3_LEASE_H_

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/files/file.h"
#include "io/remote/http/retry.h"
#include "io/remote/s3/s3_client.h"

namespace sluice::remote {

// The object is JSON:
//   {"format": "sluice.lease", "version": 1, "holder": "process 7 on host",
//    "id": <128 random bits>, "seconds": 60, "renewal": 3}
// and is put under conditions alone: If-None-Match: * where there is none,
// If-Match with the ETag to renew it or to take it over, so that of several the
// server lets one through. Each renewal has other bytes, hence another ETag:
// who read the one before cannot take over. A lease has run out when the
// server's Date is `seconds` behind the object's Last-Modified: both are the
// server's clock, so that ours may be wrong; machines of one server must agree
// within a quarter of the length. Of a server that says no times it has run out
// when it was watched unchanged for so long.
//
// Answers that get lost: who is refused looks whether what is there is his own.
//
// What servers say of a condition that does not hold: 412 PreconditionFailed;
// Amazon 409 ConditionalRequestConflict while another put is under way and 404
// for If-Match of nothing; MinIO once 304. Servers that know no conditions
// answer 501 NotImplemented, or ignore them: Acquire tries on its own object
// what must be refused. There a lease is read before it is put, which
// keeps out all but those who come in the same moment, and warning() says so.
//
// One thread at a time. Clients and the clock outlive it.
class Lease {
 public:
  Lease(S3Client& client, Clock& clock, std::string path,
        std::string_view holder, std::chrono::seconds length);

  // Waits until another's lease that is not renewed has run out, and tells
  // `waits`, if it is there, as FileSystem::Lock does. While another renews it,
  // kFailedPrecondition, the message being that holder; so is what is no lease.
  // Other errors of the client, which may be a more patient one than that of
  // what follows.
  Status Acquire(S3Client& client, const FileSystem::OnWait& waits = nullptr);
  // kFailedPrecondition, the message saying what happened to it, where it is no
  // longer this one's; other errors tell nothing: it may be tried again.
  Status Renew();
  // Lets others have it. What cannot be removed for certain is left to run out.
  void Release();

  // Is nobody else's yet, for certain: for three quarters of its length behind
  // the start of the last put that succeeded, so that requests under way end
  // within the lease. By both clocks, since one of them stands still while the
  // machine sleeps and the other may be set.
  struct Instant {
    std::chrono::steady_clock::time_point steady;
    std::time_t time = 0;
  };
  static Instant NowOf(Clock& clock) { return {clock.Now(), clock.Time()}; }
  bool IsCertain(const Instant& confirmed, const Instant& now) const;
  const Instant& confirmed() const { return confirmed_; }

  const std::string& path() const { return path_; }
  // One line; empty: none.
  std::string warning() const;

 private:
  struct Found {
    std::string etag;
    std::string id, holder;  // no id: it is no lease
    int64_t seconds = 0, renewal = 0;
    std::optional<int64_t> age;  // seconds since it was put, by the server
  };
  enum class Put { kDone, kRefused, kUnknownCondition };

  Result<std::optional<Found>> Read(S3Client& client) const;
  static Status ReadFields(std::string_view body, Found* found);
  // `etag`: of what it replaces; null: nothing.
  Result<Put> PutWith(S3Client& client, const std::string* etag);
  Result<Put> PutIfAllowed(S3Client& client, const std::string* etag);
  Status TryConditions(S3Client& client);
  std::string Body(int64_t renewal) const;
  std::string TextOf(const Found& found) const;
  // `watched`: for how many seconds it has been, if the server says no times.
  std::string WaitingFor(const Found& found, int64_t watched) const;

  S3Client& client_;
  Clock& clock_;
  const std::string path_, holder_;
  const std::chrono::seconds length_;
  const std::string id_;
  bool conditional_ = true;  // as far as is known
  int64_t renewal_ = 0;      // of the last put
  Instant sent_;             // the start of the last put
  std::string etag_;         // of what is there; empty: not this one's
  Instant confirmed_;
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_LEASE_H_
