// Pages that hold all they need: no script, no file beside them, nothing from
// the network.
#ifndef SLUICE_MODELS_REPORT_HTML_H_
#define SLUICE_MODELS_REPORT_HTML_H_

#include <string>
#include <string_view>

#include "engine/tensor.h"

namespace sluice::report {

// Text as it stands in an element or in a quoted attribute. What is no UTF-8,
// and control characters but tabs and line ends, become U+FFFD.
std::string Escape(std::string_view text);

// A whole page, from <!doctype> on, with the style sheet of all of them, which
// follows the reader's light or dark setting. `title` is text, `body` HTML with
// the <h1>.
std::string Page(std::string_view title, std::string_view body);

// An <img> of uint8 [height,width,1|3|4], whose bytes it holds as PNG. "" where
// the build has no libpng. Throws Error for another tensor.
std::string Picture(const Tensor& image, std::string_view alternative);

}  // namespace sluice::report

#endif  // SLUICE_MODELS_REPORT_HTML_H_
