// Synthetic handwritten-like digits, for trying things without data: strokes
// of a few writing variants per digit, bent and transformed at random, drawn
// anti-aliased. All arithmetic is on integers: the same bytes everywhere.
#ifndef SLUICE_IO_SOURCES_DIGITS_H_
#define SLUICE_IO_SOURCES_DIGITS_H_

#include <cstdint>

#include "engine/tensor.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

inline constexpr int kDigitSize = 28;  // pixels, both ways

// Draws digit number `index` of the sequence `seed` into 28x28 row-major bytes
// (0 paper, 255 ink) and returns its label, 0..9. A pure function.
int DrawDigit(uint64_t seed, uint64_t index, uint8_t* pixels);

struct Digits {
  Tensor images;  // uint8 [count,28,28,1]
  Tensor labels;  // int64 [count]
};
// Digits 0..count-1 of the sequence, on the compute threads.
Digits DrawDigits(int64_t count, uint64_t seed);

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_DIGITS_H_
