// Tensors and attribute values in the text form (graph/text/text.h).
#ifndef SLUICE_GRAPH_TEXT_TEXT_TENSOR_H_
#define SLUICE_GRAPH_TEXT_TEXT_TENSOR_H_

#include <string>

#include "engine/attributes.h"
#include "engine/visibility.h"
#include "graph/text/text_scanner.h"

namespace SLUICE_INTERNAL sluice {

std::string PrintValue(const AttrValue& value);

// Reads the value of an attribute of the given type. `filled` counts bytes that
// "{element ...}" asked for, over the whole text, and is limited: a short text
// must not take all memory.
Result<AttrValue> ParseValue(TextScanner& scanner, AttrType type,
                             size_t* filled);

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_TEXT_TENSOR_H_
