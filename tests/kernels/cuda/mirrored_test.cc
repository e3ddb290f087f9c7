// Several GPUs of one process train one model.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/kernels/cuda/emulation/gpu.h"
#include "tests/support/error_text.h"
#include "tests/support/worker_threads.h"

namespace sluice::testing {
namespace {

std::vector<std::string> Gpus(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back("/gpu:" + std::to_string(i));
  }
  return devices;
}

Trained Train(const TrainerSpec& spec, const TrainingOptions& options) {
  Task task = ToyTask(0, 1);
  task.spec = [&](int) { return spec; };
  task.options = [&](int) { return options; };
  return TrainWith(1, task)[0];
}

// Four logical devices, on a machine of any number.
TEST_CASE("mirrored GPUs train what one GPU does with virtual workers") {
  RegisterGpu();
  for (const int count : {1, 2, 4}) {
    TrainingOptions one = Virtual(4);
    one.session.share_accelerators = true;
    TrainingOptions mirrored = one;
    one.session.devices = {"/gpu:0"};
    mirrored.mirrored.devices = Gpus(count);
    const Trained wanted = Train(ToySpec(), one);
    CAPTURE(count);
    for (const bool on_each : {true, false}) {
      mirrored.mirrored.variables_on_each = on_each;
      CAPTURE(on_each);
      const Trained got = Train(ToySpec(), mirrored);
      if (on_each) {
        CheckEqual(got, wanted);
        CHECK(got.result.evaluation->values ==
              wanted.result.evaluation->values);
      } else {
        CheckNear(got, wanted, 1e-3);  // updated by the CPU
      }
    }
  }
}

TEST_CASE("a GPU that is not there is named") {
  RegisterGpu();
  if (OnRealGpu()) return;  // how many there are differs
  for (const bool on_each : {true, false}) {
    TrainingOptions options;
    options.mirrored = {{"/gpu:0", "/gpu:7"}, on_each};
    CHECK(Contains(Train(PlainSpec(), options).error, "'/gpu:7'"));
  }
}

}  // namespace
}  // namespace sluice::testing
