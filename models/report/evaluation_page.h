// The results of an evaluation as one page to read.
#ifndef SLUICE_MODELS_REPORT_EVALUATION_PAGE_H_
#define SLUICE_MODELS_REPORT_EVALUATION_PAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "engine/visibility.h"
#include "models/report/classification.h"
#include "models/report/line_chart.h"

namespace SLUICE_INTERNAL sluice {
namespace report {

// Facts that the page has beside the figures. All of it is text, none HTML.
struct EvaluationFacts {
  std::string title;
  // In the order they are shown: {"model", "resnet20"}, ...
  std::vector<std::pair<std::string, std::string>> facts = {};
  // The name of example i, such as its file. Examples without a name are called
  // by their number.
  std::vector<std::string> example_names = {};
  std::vector<Chart> charts = {};  // of the training
};

// A whole page (html.h): the headline figures, the facts, the charts, a table
// of the classes (of more than 100, the 100 with the least F1), the confusion
// matrix (of more than 30 classes, the 50 most frequent confusions) and the
// worst mistakes with their pictures.
std::string EvaluationPage(const EvaluationFacts& facts,
                           const Classification& classification);

}  // namespace report
}  // namespace sluice

#endif  // SLUICE_MODELS_REPORT_EVALUATION_PAGE_H_
