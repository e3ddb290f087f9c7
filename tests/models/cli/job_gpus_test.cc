// What --transport nccl refuses, each in a line.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "models/cli/job.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

std::string Refusal(const std::function<void(JobFlags* flags)>& change,
                    const std::string& device = "/gpu:0",
                    bool virtual_workers = false) {
  JobFlags flags;
  flags.transport = "nccl";
  change(&flags);
  Job job;
  return ErrorOf([&] { MeetOnGpus(flags, device, virtual_workers, &job); });
}

TEST_CASE("--transport nccl says what it is not for") {
  const auto nothing = [](JobFlags*) {};
  CHECK(Refusal(nothing, "/cpu:0") ==
        "--transport nccl: it is from GPU to GPU, and the steps are on /cpu:0; "
        "give --device /gpu");
  CHECK(Contains(Refusal(nothing, "/gpu:0", /*virtual_workers=*/true),
                 "--virtual-workers"));
  CHECK(Contains(Refusal([](JobFlags* f) { f->deterministic = true; }),
                 "--deterministic"));
  CHECK(Contains(Refusal([](JobFlags* f) { f->strategy = "ps"; }),
                 "--strategy ring, not ps"));
  CHECK(Contains(Refusal([](JobFlags* f) { f->pipeline_stages = 2; }),
                 "--pipeline-stages"));
  CHECK(Contains(Refusal([](JobFlags* f) { f->all_reduce = "ring"; }),
                 "--all-reduce ring"));
  // A process alone meets nobody.
  CHECK(Refusal(nothing) == "(no error)");
  CHECK(Refusal([](JobFlags* f) { f->strategy = "ring"; }) == "(no error)");
}

}  // namespace
}  // namespace sluice
