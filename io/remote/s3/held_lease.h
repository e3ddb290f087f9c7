// Leases that are renewed while a program goes on, and what it may write.
#ifndef SLUICE_IO_REMOTE_S3_HELD_LEASE_H_
#define SLUICE_IO_REMOTE_S3_HELD_LEASE_H_

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "io/remote/http/retry.h"
#include "io/remote/http/url.h"
#include "io/remote/s3/lease.h"

namespace sluice::remote {

// An acquired lease and the thread that renews it, four times in its length,
// until it is destroyed or lost. Thread-safe.
class HeldLease {
 public:
  // `lease` is of the folder that the object lies in. The clock must outlive
  // this.
  HeldLease(Lease lease, Clock& clock, std::chrono::seconds length);
  ~HeldLease();  // releases it
  HeldLease(const HeldLease&) = delete;
  HeldLease& operator=(const HeldLease&) = delete;

  // Fine while the lease is certain (lease.h). Where it is not, as behind an
  // outage or after the machine slept, waits until it has been renewed;
  // kUnavailable where it was lost or `patience` is over.
  Status Check(std::chrono::milliseconds patience) EXCLUDES(mutex_);
  bool lost() EXCLUDES(mutex_);

  bool Covers(const ObjectPath& object) const;
  const ObjectPath& object() const { return object_; }

 private:
  void Work() EXCLUDES(mutex_);

  Clock& clock_;
  const std::chrono::milliseconds interval_;
  const std::string path_;
  const ObjectPath object_;
  Lease lease_;  // the thread's, while that runs
  Mutex mutex_;
  CondVar changed_;
  Lease::Instant confirmed_ GUARDED_BY(mutex_);
  Status lost_ GUARDED_BY(mutex_);     // ok: not yet
  Status trouble_ GUARDED_BY(mutex_);  // of the last try to renew it
  bool hurry_ GUARDED_BY(mutex_) = false;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// All that a file system holds. Thread-safe.
class HeldLeases {
 public:
  void Add(std::shared_ptr<HeldLease> lease) EXCLUDES(mutex_);
  // Removes a lease; one that was lost stays, for what is still written in its
  // folder.
  void Remove(const std::shared_ptr<HeldLease>& lease) EXCLUDES(mutex_);
  // May this object be written? HeldLease::Check of the folders it is in.
  Status Check(const ObjectPath& object, std::chrono::milliseconds patience)
      EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::vector<std::shared_ptr<HeldLease>> leases_ GUARDED_BY(mutex_);
};

}  // namespace sluice::remote

#endif  // SLUICE_IO_REMOTE_S3_HELD_LEASE_H_
