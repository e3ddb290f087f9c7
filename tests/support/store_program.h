// Programs that use an object store of this process, which they find by their
// environment.
#ifndef SLUICE_TESTS_SUPPORT_STORE_PROGRAM_H_
#define SLUICE_TESTS_SUPPORT_STORE_PROGRAM_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/text/json_object.h"
#include "tests/places.h"
#include "tests/support/object_store.h"
#include "tests/support/program.h"

namespace sluice::testing {

// While it lives, programs use the store for s3://.
class StoreSettings {
 public:
  explicit StoreSettings(const ObjectStore& store) {
    const auto environment = store.environment();
    for (const char* name : kNames) {
      setenv(name, environment(name).value_or("").c_str(), 1);
    }
  }
  ~StoreSettings() {
    for (const char* name : kNames) unsetenv(name);
  }
  StoreSettings(const StoreSettings&) = delete;
  StoreSettings& operator=(const StoreSettings&) = delete;

 private:
  static constexpr const char* kNames[] = {
      "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
      "AWS_REGION", "AWS_ENDPOINT_URL_S3"};
};

// Whether the tool was built with what s3:// takes.
inline bool KnowsStores() {
  const Outcome doctor =
      RunProgram(SLUICE_BIN_DIR "/sluice", {"doctor", "--json"});
  const JsonObject libraries = JsonObject::Parse(LastLine(doctor.out))
                                   .ValueOrThrow()
                                   .Object("libraries")
                                   .ValueOrThrow();
  const auto present = [&](const char* name) {
    return libraries.String(name).ValueOrThrow() == "present";
  };
  const bool all = present("crypto") && present("curl") && present("expat");
  if (!all) MESSAGE("skipped: this build has no s3://");
  return all;
}

// Puts the files of a folder there, by their paths from it on.
inline void Upload(ObjectStore& store, const std::string& folder,
                   const std::string& prefix) {
  namespace fs = std::filesystem;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    const std::string path = entry.path().lexically_relative(folder);
    store.Put(prefix + "/" + path, TextOf(entry.path()));
  }
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STORE_PROGRAM_H_
