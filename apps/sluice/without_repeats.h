#ifndef SLUICE_APPS_SLUICE_WITHOUT_REPEATS_H_
#define SLUICE_APPS_SLUICE_WITHOUT_REPEATS_H_

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace sluice::tool {

// Folders without those that are another's in other words.
inline std::vector<std::string> WithoutRepeats(
    const std::vector<std::string>& folders) {
  std::vector<std::string> once;
  std::set<std::filesystem::path> seen;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::filesystem::path place = std::filesystem::canonical(folder, error);
    if (error) place = folder;  // reading it says what is wrong
    if (seen.insert(std::move(place)).second) once.push_back(folder);
  }
  return once;
}

}  // namespace sluice::tool

#endif  // SLUICE_APPS_SLUICE_WITHOUT_REPEATS_H_
