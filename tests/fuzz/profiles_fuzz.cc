// Any text is profiles or an error, which shows nothing of it.
#include <string>
#include <string_view>

#include "io/remote/s3/profiles.h"

namespace sluice::remote {
namespace {

void Check(std::string_view text) {
  const auto sections = ParseIni(text, "f");
  if (!sections.ok()) {
    SLUICE_CHECK(sections.status().message().starts_with("'f', line "));
    return;
  }
  SectionsOf(*sections, "profile");
  for (const auto& [name, options] : *sections) {
    for (const auto& [option, value] : options) {
      SLUICE_CHECK(!option.empty());
      NestedOptions(value);
    }
  }
}

}  // namespace
}  // namespace sluice::remote

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::remote::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
