// Keeps the choices that were measured to be fastest between runs, in the
// user's cache folder: measuring a network's convolutions takes longer than its
// first step.
//
// The file is text: a line that names the format, then a line for each choice,
//   KEY \t SUGGESTION \t ENGINE
// KEY says everything the choice depends on: GPU, library version, shapes.
#ifndef SLUICE_KERNELS_CUDA_RUNTIME_CHOICE_FILE_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_CHOICE_FILE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "engine/thread_annotations.h"

namespace sluice::cuda {

class ChoiceFile {
 public:
  struct Choice {
    int64_t suggestion = 0;  // which of the library's, in its order
    int64_t engine = 0;      // the library's number of it, to see if it is that
    friend bool operator==(const Choice&, const Choice&) = default;
  };

  // Without a path choices are kept in memory alone.
  explicit ChoiceFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Thread-safe. Lines that make no sense are ignored, and files that cannot be
  // read or written (user_cache.h): then the choice is measured again.
  std::optional<Choice> Find(const std::string& key) EXCLUDES(mutex_);
  void Keep(const std::string& key, const Choice& choice) EXCLUDES(mutex_);

 private:
  void Read() REQUIRES(mutex_);
  void Write() REQUIRES(mutex_);

  const std::filesystem::path path_;
  Mutex mutex_;
  bool read_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Choice> choices_ GUARDED_BY(mutex_);
};

}  // namespace sluice::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_CHOICE_FILE_H_
