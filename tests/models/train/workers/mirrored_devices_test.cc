#include "models/train/workers/mirrored_devices.h"

#include <doctest/doctest.h>

#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

TEST_CASE("mirrored devices are names with commas between them") {
  using Devices = std::vector<std::string>;
  CHECK(ParseMirroredDevices("/cpu:3") == Devices{"/cpu:3"});
  CHECK(ParseMirroredDevices("/gpu:0,/gpu:2,/gpu:1") ==
        Devices{"/gpu:0", "/gpu:2", "/gpu:1"});
  const auto error = [](const char* text) {
    return ErrorOf([&] { ParseMirroredDevices(text); });
  };
  for (const char* text : {"", "/cpu:0,", ",/cpu:0", "/cpu:0 /cpu:1",
                           "/cpu:0, /cpu:1", "cpu:0", "/cpu", "/gpu"}) {
    CAPTURE(text);
    CHECK(Contains(error(text), "unknown device"));
  }
  CHECK(Contains(error("/gpu:1,/gpu:0,/gpu:1"), "'/gpu:1' is there twice"));
  CHECK(Contains(error("/gpu:1,/cpu:0"), "of another kind than '/gpu:1'"));
  CHECK(Contains(error("/null:0,/null:1"), "computes nothing"));
}

}  // namespace
}  // namespace sluice
