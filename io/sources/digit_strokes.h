// The digits as people write them: skeletons for io/sources/digits.h. Internal
// to io.
#ifndef SLUICE_IO_SOURCES_DIGIT_STROKES_H_
#define SLUICE_IO_SOURCES_DIGIT_STROKES_H_

#include <span>

namespace sluice {

// A point on a sheet of 100 x 100, y downwards.
struct StrokePoint {
  int x;
  int y;
};
// A smooth curve through the points. A sharp corner is the end of one stroke
// and the start of the next.
using Stroke = std::span<const StrokePoint>;
// One way to write a digit.
using Glyph = std::span<const Stroke>;

// The ways to write `digit`, 0..9.
std::span<const Glyph> GlyphsOf(int digit);

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_DIGIT_STROKES_H_
