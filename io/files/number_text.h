// Numbers as text files have them, read exactly and alike in every locale.
// Internal to io.
#ifndef SLUICE_IO_FILES_NUMBER_TEXT_H_
#define SLUICE_IO_FILES_NUMBER_TEXT_H_

#include <string>
#include <string_view>

#include "engine/dtype.h"
#include "engine/status.h"

namespace sluice {

// Writes the number that the text is, blanks around it left out, to `out`, an
// element of `dtype`:
//   integers  [+-] digits, in the type's range
//   float32, float64
//             [+-] digits [. digits] [e [+-] digits], the number of the type
//             that is nearest (ties to even), which may be 0 for a very small
//             one; or [+-] inf, infinity or nan in any case
//   bool      0, 1, true or false in any case
// kDataLoss for any other text ("'1.5' is no int32", "'300' is beyond uint8").
// The dtype is none of the halves: CHECK.
Status ParseNumber(std::string_view text, DType dtype, void* out);

// The text without spaces and tabs around it.
std::string_view TrimBlanks(std::string_view text);

// The text as messages show it: in quotes, shortened, without control
// characters.
std::string Quoted(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_IO_FILES_NUMBER_TEXT_H_
