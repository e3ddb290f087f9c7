// Examples as bytes, for files that stay on the machine that wrote them.
//
//   example := passed_over whole_rows entries entry*
//   entry   := text(name) text(dtype) rank dimension* data
//   text    := length characters
//
// All numbers are 64 bits in the machine's byte order, as are the elements;
// `data` is as long as dtype and dimensions say.
#ifndef SLUICE_IO_CACHE_EXAMPLE_BYTES_H_
#define SLUICE_IO_CACHE_EXAMPLE_BYTES_H_

#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/example.h"

namespace sluice {

void AppendExampleBytes(const Example& example, std::string* out);

// kDataLoss unless the bytes are one example and nothing else. Its tensors own
// their memory, which is no more than there are bytes.
Result<Example> ParseExampleBytes(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_EXAMPLE_BYTES_H_
