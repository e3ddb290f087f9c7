// One JSON object per line on stdout.
#ifndef SLUICE_APPS_SLUICE_JSON_H_
#define SLUICE_APPS_SLUICE_JSON_H_

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::tool {

using Json = nlohmann::ordered_json;

// Names in files may hold bytes that are no UTF-8.
inline void PrintJson(const Json& json) {
  const std::string line =
      json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", line.c_str());
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_JSON_H_
