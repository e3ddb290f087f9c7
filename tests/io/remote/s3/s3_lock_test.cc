// FileSystem::Lock in an object store: a lease that a thread renews, and writes
// that fail once it is lost.
#if defined(SLUICE_HAVE_CURL) && defined(SLUICE_HAVE_CRYPTO) && \
    defined(SLUICE_HAVE_EXPAT)
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "io/checkpoints/checkpoint.h"
#include "io/remote/s3/s3_files.h"
#include "tests/support/error_text.h"
#include "tests/support/remote_files.h"

namespace sluice::remote {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::RemoteFiles;
using testing::ServedRequest;
using testing::SmallSizes;
using testing::StoreFault;

constexpr char kLock[] = "s3://b/run/training.lock";

S3Options Leases(int length) {
  S3Options options = SmallSizes();
  options.lease = seconds(length);
  options.retry.deadline = seconds(5);
  return options;
}

// Within some seconds.
template <typename Fn>
bool Comes(Fn fn) {
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (!fn()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

TEST_CASE("s3: a lock is held until it is destroyed") {
  RemoteFiles remote(Leases(2));
  S3Files other(*remote.client, remote.store.environment(), Clock::System(),
                Leases(2));
  auto lock = remote.files.Lock(kLock, "process 1 on here");
  REQUIRE(lock.ok());
  CHECK((*lock)->warning().empty());
  // Longer than the lease, renewed all the time.
  const auto until = std::chrono::steady_clock::now() + seconds(5);
  while (std::chrono::steady_clock::now() < until) {
    const Status refused = other.Lock(kLock, "process 2").status();
    REQUIRE(refused.code() == Code::kFailedPrecondition);
    CHECK(Contains(refused.message(), "process 1 on here, for "));
    CHECK(remote.files.WriteAtomically("s3://b/run/x", "1").ok());
  }
  lock->reset();
  CHECK_FALSE(remote.store.Has("run/training.lock"));
  CHECK(other.Lock(kLock, "process 2").ok());
  CHECK(remote.files.Lock("s3://b", "x").status().code() ==
        Code::kInvalidArgument);
}

TEST_CASE("s3: two managers of one folder's checkpoints") {
  RemoteFiles remote(Leases(60));
  CheckpointManager::Options options;
  options.files = &remote.files;
  const auto first = CheckpointManager::Open("s3://b/run", options);
  REQUIRE(first.ok());
  CHECK(first->warning().empty());
  // Before the first renewal: it waits, and nothing passes but its own time.
  const Status second = CheckpointManager::Open("s3://b/run", options).status();
  CHECK(second.code() == Code::kFailedPrecondition);
  CHECK(Contains(second.message(),
                 "'s3://b/run' belongs to a training that is under way "
                 "(process "));
  CHECK(CheckpointManager::Open("s3://b/run2", options).ok());
}

TEST_CASE("s3: whose lease was taken over writes nothing more there") {
  RemoteFiles remote(Leases(1));
  FileSystem& files = remote.files;
  auto lock = files.Lock(kLock, "process 1");
  REQUIRE(lock.ok());
  REQUIRE(files.WriteAtomically("s3://b/run/old", "old").ok());
  auto large = *files.Create("s3://b/run/large");
  REQUIRE(large->Append(std::string(2500, 'x')).ok());
  auto log = *files.OpenAppend("s3://b/run/sub/log");
  REQUIRE(log->Append("a line\n").ok());
  remote.store.Put("run/training.lock",
                   R"({"format": "sluice.lease", "version": 1, "id": "7",)"
                   R"( "holder": "process 2 on there", "seconds": 1000})");
  Status lost;
  REQUIRE(Comes([&] {
    lost = files.WriteAtomically("s3://b/run/new", "new");
    return !lost.ok();
  }));
  CAPTURE(lost.message());
  CHECK(lost.code() == Code::kUnavailable);
  CHECK(Contains(lost.message(),
                 "cannot write 's3://b/run/new': the lock of 's3://b/run' was "
                 "lost, so that what is written there could overwrite "
                 "another's: process 2 on there, for "));
  const auto refused = [](const Status& status) {
    return Contains(status.message(), "the lock of 's3://b/run' was lost");
  };
  CHECK(refused(large->Close()));
  CHECK(refused(log->Sync()));
  CHECK(refused(files.Remove("s3://b/run/old")));
  CHECK(refused(files.Rename("s3://b/run/old", "s3://b/run/new")));
  CHECK(refused(files.Rename("s3://b/run/old", "s3://b/elsewhere")));
  CHECK(*files.Read("s3://b/run/old") == "old");
  CHECK(files.WriteAtomically("s3://b/running", "fine").ok());
  CHECK_FALSE(remote.store.Has("run/large"));
  large.reset();
  CHECK(remote.store.OpenUploads() == 0);
  // Not after its end either, until it is locked again.
  lock->reset();
  log.reset();
  CHECK(remote.store.Get("run/sub/log").bytes.empty());
  CHECK(refused(files.WriteAtomically("s3://b/run/new", "new")));
  CHECK(remote.store.Has("run/training.lock"));
  REQUIRE(files.WriteAtomically("s3://b/x", "").ok());
  S3Files other(*remote.client, remote.store.environment());
  REQUIRE(other.Remove(kLock).ok());
  auto again = files.Lock(kLock, "process 1");
  REQUIRE(again.ok());
  CHECK(files.WriteAtomically("s3://b/run/new", "new").ok());
}

TEST_CASE("s3: behind an outage a write waits until the lease is renewed") {
  RemoteFiles remote(Leases(60));
  const auto lock = remote.files.Lock(kLock, "process 1");
  REQUIRE(lock.ok());
  const int puts = remote.store.Count("PUT");
  remote.clock.Sleep(seconds(100));  // as if the machine had slept
  REQUIRE(remote.files.WriteAtomically("s3://b/run/x", "1").ok());
  CHECK(remote.store.Count("PUT") == puts + 2);
  // While it cannot be renewed nothing is written.
  remote.clock.Sleep(seconds(100));
  remote.store.Fail([](const ServedRequest& request, int) {
    const bool lease =
        request.target.find("training.lock") != std::string::npos;
    return lease ? StoreFault::kError500 : StoreFault::kNone;
  });
  const Status status = remote.files.WriteAtomically("s3://b/run/x", "2");
  CHECK(status.code() == Code::kUnavailable);
  CAPTURE(status.message());
  CHECK(Contains(status.message(),
                 "the lock of 's3://b/run' cannot be renewed, so that others "
                 "may write there by now: cannot lock"));
  CHECK(remote.store.Get("run/x").bytes == "1");
  remote.store.Fail(nullptr);
  CHECK(remote.files.WriteAtomically("s3://b/run/x", "3").ok());
}

TEST_CASE("s3: a store without conditions warns") {
  RemoteFiles remote(Leases(60));
  remote.store.SetConditions(testing::Conditions::kIgnored);
  const auto lock = remote.files.Lock(kLock, "process 1");
  REQUIRE(lock.ok());
  CHECK(Contains((*lock)->warning(), "knows no conditional writes"));
}

}  // namespace
}  // namespace sluice::remote
#endif
