// The page that shows a search for a learning rate.
#ifndef SLUICE_MODELS_REPORT_RATE_PAGE_H_
#define SLUICE_MODELS_REPORT_RATE_PAGE_H_

#include <string>
#include <string_view>

#include "engine/visibility.h"
#include "models/train/rate_finder.h"

namespace SLUICE_INTERNAL sluice {
namespace report {

// A whole page (html.h): the suggestion, a chart of the loss and the smoothed
// loss against the rate, without the heights to which it diverged, and a table
// of all steps. `title` is text.
std::string RatePage(const RateCurve& curve, std::string_view title);

}  // namespace report
}  // namespace sluice

#endif  // SLUICE_MODELS_REPORT_RATE_PAGE_H_
