// The process-wide verbs, where no launcher has started the process. What
// several processes do together is tested below them, on groups.
#include "dist/dist.h"

#include <doctest/doctest.h>

#include <cstdint>

#include "engine/dtype.h"
#include "engine/status.h"
#include "engine/tensor.h"

namespace sluice {
namespace {

template <typename Call>
Code CodeOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kOk;
}

}  // namespace

TEST_CASE("dist: nothing works before Init, which comes once") {
  CHECK(CodeOf([] { dist::Rank(); }) == Code::kFailedPrecondition);
  CHECK(CodeOf([] { dist::Barrier(); }) == Code::kFailedPrecondition);
  dist::Shutdown();
  dist::Init();
  CHECK(CodeOf([] { dist::Init(); }) == Code::kFailedPrecondition);
  dist::Shutdown();
  CHECK(CodeOf([] { dist::Size(); }) == Code::kFailedPrecondition);
}

TEST_CASE("dist: a process without a launcher is a job of its own") {
  dist::Init();
  CHECK(dist::Rank() == 0);
  CHECK(dist::Size() == 1);
  CHECK(dist::LocalRank() == 0);
  CHECK(dist::LocalSize() == 1);
  const Tensor x = Tensor::Array<float>({2, 2}, {1, 2, 3, 4});
  const Tensor mean = dist::AllReduce("x", x);
  CHECK(mean.BitEqual(x));
  CHECK(mean.raw() != x.raw());
  CHECK(dist::AllGather("x", x).BitEqual(x));
  CHECK(dist::Broadcast("x", x, 0).BitEqual(x));
  const Tensor scalar = dist::AllGather("s", Tensor::Scalar<int64_t>(7));
  CHECK(scalar.BitEqual(Tensor::Array<int64_t>({1}, {7})));
  dist::Barrier();
  dist::Shutdown();

  dist::Init();
  CHECK(CodeOf([&] { dist::Broadcast("x", x, 1); }) == Code::kInvalidArgument);
  // From now on the group is broken.
  CHECK(CodeOf([&] { dist::AllReduce("x", x); }) == Code::kInvalidArgument);
  dist::Shutdown();
}

}  // namespace sluice
