// Reads CIFAR-10 in its binary format (Krizhevsky, 2009). Internal to io.
//
//   file   := record+
//   record := label (1 byte, 0..9), red, green, blue (1,024 bytes each: 32 rows
//             of 32 pixels)
#ifndef SLUICE_IO_SOURCES_CIFAR_H_
#define SLUICE_IO_SOURCES_CIFAR_H_

#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/visibility.h"
#include "io/example.h"
#include "io/files/file.h"

namespace SLUICE_PUBLIC sluice {

inline constexpr int64_t kCifarSide = 32;
inline constexpr int64_t kCifarClasses = 10;

// The records of the files, one after another: image uint8 [n,32,32,3], label
// int64 [n]. Errors name the file: kNotFound, kDataLoss (a length that is no
// multiple of a record, or nothing), kOutOfRange (a label above 9).
Result<Example> ReadCifar10(const std::vector<std::string>& paths,
                            FileSystem& files = FileSystem::Default());

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_CIFAR_H_
