// Deterministic training keeps its bits: from run to run, for any number of
// threads, with AVX2 and with AVX-512, and from one version to the next.
#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "engine/cpu_features.h"
#include "io/checkpoints/safetensors.h"
#include "tests/support/mnist_program.h"

namespace sluice {
namespace {

using testing::OnMnist;
using testing::Outcome;
using testing::RunProgram;
using testing::TemporaryFolder;

// The names and bytes of what five steps of the convolutional network leave.
std::string BitsOf(const std::string& isa, const std::string& threads) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = {"SLUICE_ISA=" + isa, testing::kMnist};
  for (const std::string& argument :
       OnMnist("train",
               {"--deterministic", "--steps", "5", "--batch-size", "50",
                "--threads", threads, "--log-dir", folder / "log"},
               "cnn")) {
    arguments.push_back(argument);
  }
  const Outcome outcome = RunProgram("/usr/bin/env", arguments);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::string bits;
  for (const NamedTensor& tensor :
       ReadSafetensors(folder / "log/checkpoint-5.safetensors")
           .ValueOrThrow()
           .tensors) {
    bits += tensor.name;
    bits.append(static_cast<const char*>(tensor.tensor.raw()),
                tensor.tensor.bytes());
  }
  return bits;
}

TEST_CASE("deterministic training: threads and vector width change no bit") {
  const std::string narrow = Cpu().avx2 ? "avx2" : "baseline";
  const std::string bits = BitsOf(narrow, "1");
  CHECK(bits.size() > 1'000'000);
  CHECK((BitsOf(narrow, "2") == bits));
  if (!Cpu().avx512) return;
  CHECK((BitsOf("avx512", "1") == bits));
  CHECK((BitsOf("avx512", "2") == bits));
}

// Other compilers round other products with the sums they are part of, other
// libraries add up in another order: of these no bits are written down.
#if defined(__x86_64__) && !defined(__clang__) && defined(NDEBUG) && \
    SLUICE_HAVE_ONEDNN
// SHA-256 of what BitsOf gives.
constexpr const char* kBits =
    "664c6afe736dd711fd255bd95a166b00b8c3ebabd292710f1aef5fda106fcf1c";

TEST_CASE("deterministic training has the bits it had") {
  if (!Cpu().avx2) return;
  const TemporaryFolder folder;
  std::ofstream(folder / "bits", std::ios::binary) << BitsOf("avx2", "2");
  const Outcome sum = RunProgram("/usr/bin/sha256sum", {folder / "bits"});
  CAPTURE(sum.out);
  CHECK_MESSAGE((sum.out.substr(0, 64) == kBits),
                "if it is meant that trainings differ from those of the last "
                "version, say so in CHANGELOG.md and write the new sum here");
}
#endif

}  // namespace
}  // namespace sluice
