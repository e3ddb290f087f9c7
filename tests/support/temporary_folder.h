// A folder for one test's files.
#ifndef SLUICE_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
#define SLUICE_TESTS_SUPPORT_TEMPORARY_FOLDER_H_

#include <unistd.h>

#include <filesystem>
#include <string>

namespace sluice::testing {

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("sluice-test-" + std::to_string(getpid()) + "-" +
             std::to_string(count++));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const {
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_TEMPORARY_FOLDER_H_
