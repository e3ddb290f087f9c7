// What is shown of a training that only a hook ends.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>

#include "models/cli/progress.h"
#include "models/train/hooks/hooks.h"
#include "models/train/trainer.h"
#include "tests/support/error_text.h"
#include "tests/support/stderr_text.h"
#include "tests/support/toy_training.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::StderrOf;
using testing::StdoutOf;
using testing::ToyRun;
using testing::ToySpec;

TEST_CASE("an end that is never reached is not counted down to") {
  for (const double epochs : {HUGE_VAL, 3.0}) {
    CAPTURE(epochs);
    std::string events;
    const std::string lines = StderrOf([&] {
      events = StdoutOf([&] {
        Trainer trainer(ToySpec(), ToyRun(epochs), {.log_every = 2});
        trainer.AddHook(std::make_unique<Progress>(2));
        trainer.AddHook(std::make_unique<JsonEvents>(2));
        trainer.AddHook(std::make_unique<StopAtStep>(4));
        trainer.Train();
      });
    });
    const bool ends = std::isfinite(epochs);
    CAPTURE(lines);
    CHECK(Contains(lines, ends ? "step 2/30" : "step 2, "));
    CHECK((lines.find(" left") != std::string::npos) == ends);
    CAPTURE(events);
    CHECK(Contains(events,
                   ends ? R"("total_steps":30)" : R"("total_steps":null)"));
  }
}

}  // namespace
}  // namespace sluice
