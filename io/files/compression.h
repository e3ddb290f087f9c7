// How a stream of bytes is compressed.
#ifndef SLUICE_IO_FILES_COMPRESSION_H_
#define SLUICE_IO_FILES_COMPRESSION_H_

#include <cstdint>

namespace sluice {

enum class Compression : uint8_t {
  kNone,
  kGzip,  // RFC 1952
  kZlib,  // RFC 1950
};

}  // namespace sluice

#endif  // SLUICE_IO_FILES_COMPRESSION_H_
