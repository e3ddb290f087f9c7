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

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/status.h"
#include "io/example.h"

namespace sluice {

void AppendExampleBytes(const Example& example, std::string* out);

// A source of the bytes of an example, once, from the first to the last.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  // The number of bytes that are still to come.
  virtual uint64_t left() const = 0;
  // The next n, which are no more than left(); valid until the next call.
  virtual Result<std::string_view> Take(size_t n) = 0;
  // Reads the next n bytes into memory.
  virtual Status Read(void* to, size_t n) = 0;
};

// kDataLoss unless what is left are one example's bytes and nothing else. Its
// tensors own their memory, which is no more than there are bytes.
Result<Example> ParseExample(ExampleSource& source);
Result<Example> ParseExampleBytes(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_CACHE_EXAMPLE_BYTES_H_
