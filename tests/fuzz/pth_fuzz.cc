// Any bytes make the tensors of a .pth file or an error, and memory in
// proportion: as a file, whose checksums stop most inputs, and as the pickle in
// one with two storages.
#include <string>
#include <string_view>

#include "io/checkpoints/pth.h"
#include "tests/support/pth_bytes.h"

namespace sluice {
namespace {

void Check(std::string_view file) {
  const auto tensors = ParsePth(file, "fuzz");
  if (!tensors.ok()) {
    const Code code = tensors.status().code();
    SLUICE_CHECK(code == Code::kDataLoss || code == Code::kUnimplemented);
    return;
  }
  size_t bytes = 0;
  for (const NamedTensor& t : *tensors) {
    bytes += t.tensor.bytes();
    if (t.tensor.bytes() > 0) (void)t.tensor.At(t.tensor.elements() - 1);
  }
  SLUICE_CHECK(bytes <= 16 * file.size() + (size_t{16} << 20));
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  sluice::Check(bytes);
  sluice::Check(sluice::testing::PthFile(
      bytes, {{"0", std::string(24, '\1')}, {"1", std::string(3, '\0')}}));
  return 0;
}
