// Any bytes make a safetensors file or an error; what was read survives being
// written and read again.
#include <string_view>

#include "io/checkpoints/safetensors.h"
#include "tests/support/fault_file_system.h"

namespace sluice {
namespace {

// Names that a reader accepts and a writer refuses.
bool Writable(const Safetensors& file) {
  for (const NamedTensor& t : file.tensors) {
    if (t.name.empty()) return false;
  }
  return !file.metadata.contains("sluice.crc32");
}

const Tensor* Find(const Safetensors& file, const std::string& name) {
  for (const NamedTensor& t : file.tensors) {
    if (t.name == name) return &t.tensor;
  }
  return nullptr;
}

void CheckRoundTrip(std::string_view bytes) {
  const auto file = ParseSafetensors(bytes, "fuzz");
  if (!file.ok() || !Writable(*file)) return;
  testing::FaultFileSystem files;
  SLUICE_CHECK(
      WriteSafetensors("f", file->tensors, file->metadata, files).ok());
  const auto again = ReadSafetensors("f", files);
  SLUICE_CHECK(again.ok());
  SLUICE_CHECK(again->metadata == file->metadata);
  SLUICE_CHECK(again->tensors.size() == file->tensors.size());
  for (const NamedTensor& t : file->tensors) {
    const Tensor* read = Find(*again, t.name);
    SLUICE_CHECK(read != nullptr && read->BitEqual(t.tensor));
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::CheckRoundTrip({reinterpret_cast<const char*>(data), size});
  return 0;
}
