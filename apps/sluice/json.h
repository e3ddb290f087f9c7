// One JSON object per line on stdout.
#ifndef SLUICE_APPS_SLUICE_JSON_H_
#define SLUICE_APPS_SLUICE_JSON_H_

#include <cstdio>

#include "engine/text/json.h"

namespace sluice::tool {

// Names in files may hold bytes that are no UTF-8.
inline void PrintJson(const Json& json) {
  std::printf("%s\n", json.LenientText().c_str());
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_JSON_H_
