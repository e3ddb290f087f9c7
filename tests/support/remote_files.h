// File systems of io/remote over an ObjectStore.
#ifndef SLUICE_TESTS_SUPPORT_REMOTE_FILES_H_
#define SLUICE_TESTS_SUPPORT_REMOTE_FILES_H_

#include <chrono>
#include <memory>

#include "io/remote/http/curl_client.h"
#include "io/remote/s3/s3_files.h"
#include "tests/support/object_store.h"
#include "tests/support/slept_clock.h"

namespace sluice::testing {

// Small sizes, so that small objects have many parts.
inline remote::S3Options SmallSizes() {
  remote::S3Options options;
  options.read = {.head = 100,
                  .block = 256,
                  .blocks_ahead = 4,
                  .part = 1000,
                  .parallel_parts = 4};
  options.upload = {.part = 1000, .most_parts = 50, .parallel_parts = 3};
  return options;
}

// A store and its bucket as a file system, "s3://b/".
struct RemoteFiles {
  explicit RemoteFiles(const remote::S3Options& options = SmallSizes())
      : files(*client, store.environment(), clock, options) {}

  ObjectStore store;
  std::unique_ptr<remote::HttpClient> client =
      remote::MakeCurlClient({.stall = std::chrono::seconds(1)}).ValueOrThrow();
  SleptClock clock;
  remote::S3Files files;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_REMOTE_FILES_H_
