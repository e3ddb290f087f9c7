// Names of devices, and that each opened device is another.
#include "engine/device.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

namespace sluice {
namespace {

TEST_CASE("names are read and written") {
  const DeviceName here = ParseDeviceName("/cpu:1").ValueOrThrow();
  CHECK(here == DeviceName{DeviceType::kCpu, 1});
  const DeviceName there =
      ParseDeviceName("/job:worker/task:12/gpu:3").ValueOrThrow();
  CHECK(there == DeviceName{DeviceType::kCuda, 3, "worker", 12});
  for (const char* name :
       {"/cpu:0", "/gpu:7", "/null:0", "/job:ps/task:0/cpu:0",
        "/job:a_1/task:999/null:2147483647"}) {
    CHECK(ParseDeviceName(name).ValueOrThrow().ToString() == name);
  }
}

TEST_CASE("what is no name says what names look like") {
  for (const char* name : {"",
                           "/",
                           "cpu:0",
                           "/cpu",
                           "/cpu:",
                           "/cpu:-1",
                           "/cpu:x",
                           "/cpu:0x",
                           "/cpu:0/",
                           "/cpu:2147483648",
                           "/tpu:0",
                           "/job:worker",
                           "/job:worker/",
                           "/job:worker/cpu:0",
                           "/job:/task:0/cpu:0",
                           "/job:W/task:0/cpu:0",
                           "/job:1/task:0/cpu:0",
                           "/job:worker/task:/cpu:0",
                           "/job:worker/task:-1/cpu:0",
                           "/job:worker/task:0",
                           "/task:0/cpu:0",
                           "/job:worker/task:0/cpu:0 ",
                           "/cpu:0/job:worker/task:0"}) {
    CAPTURE(name);
    const Status status = ParseDeviceName(name).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("/job:worker/task:0/cpu:0") !=
          std::string::npos);
  }
}

TEST_CASE("a GPU has a CPU beside it, others are their own") {
  CHECK(HostsOf({"/gpu:3", "/cpu:2", "/null:1", "/job:ps/task:4/gpu:1",
                 "/job:ps/task:4/cpu:1", "gpu"}) ==
        std::vector<std::string>{"/cpu:0", "/cpu:2", "/null:1",
                                 "/job:ps/task:4/cpu:0", "/job:ps/task:4/cpu:1",
                                 "gpu"});
}

TEST_CASE("another process's device cannot be opened") {
  const DeviceName name =
      ParseDeviceName("/job:ps/task:1/cpu:0").ValueOrThrow();
  const Status status = Device::Open(name).status();
  CHECK(status.code() == Code::kNotFound);
  CHECK(status.message().find("/job:ps/task:1/cpu:0") != std::string::npos);
}

TEST_CASE("what does not fit on the host is an error, not an exception") {
  const DeviceMemory memory(nullptr);
  const Tensor huge(DType::kUInt8, {int64_t{1} << 46}, nullptr, nullptr);
  CHECK(memory.Download(huge).status().code() == Code::kResourceExhausted);
  CHECK(memory.Allocate(size_t{1} << 46).status().code() ==
        Code::kResourceExhausted);
  const Tensor small = Tensor::Full(DType::kInt32, {3}, 7);
  CHECK(memory.Download(small)->BitEqual(small));
  CHECK(memory.Download(small)->raw() != small.raw());
}

TEST_CASE("incarnations are all different") {
  std::set<uint64_t> seen = {0};
  for (int i = 0; i < 1000; ++i) {
    const Device device({DeviceType::kCpu, 0});
    CHECK(seen.insert(device.incarnation()).second);
  }
}

}  // namespace
}  // namespace sluice
