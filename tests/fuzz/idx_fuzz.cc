// Any bytes make an IDX tensor or an error, and memory in proportion.
#include <string_view>

#include "io/files/gzip.h"
#include "io/sources/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tensor = sluice::ParseIdx(bytes, "fuzz");
  if (tensor.ok()) {
    SLUICE_CHECK(tensor->bytes() <= size * sluice::kMaxGzipRatio);
    if (tensor->bytes() > 0) (void)tensor->At(tensor->elements() - 1);
  } else {
    SLUICE_CHECK(tensor.status().code() != sluice::Code::kInternal);
  }
  return 0;
}
