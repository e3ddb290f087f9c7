// A temporary folder in the form of MNIST: four IDX files of synthetic digits.
#ifndef SLUICE_TESTS_SUPPORT_IDX_FOLDER_H_
#define SLUICE_TESTS_SUPPORT_IDX_FOLDER_H_

#include <fstream>
#include <string>

#include "io/sources/digits.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {

class IdxFolder {
 public:
  IdxFolder(int64_t training, int64_t test) {
    Write("train", DrawDigits(training, 1));
    Write("t10k", DrawDigits(test, 2));
  }
  std::string path() const { return folder_.path(); }
  std::string operator/(const std::string& name) const {
    return folder_ / name;
  }

  // Writes one file's header and bytes.
  void WriteFile(const std::string& name, const std::vector<int64_t>& dims,
                 const std::string& bytes) const {
    std::string header = {0, 0, 8, static_cast<char>(dims.size())};
    for (int64_t d : dims) {
      for (int shift : {24, 16, 8, 0}) {
        header += static_cast<char>(d >> shift & 0xff);
      }
    }
    std::ofstream(folder_ / name, std::ios::binary) << header << bytes;
  }

 private:
  void Write(const std::string& split, const Digits& digits) const {
    const int64_t n = digits.labels.elements();
    const auto* pixels =
        reinterpret_cast<const char*>(digits.images.data<uint8_t>());
    WriteFile(split + "-images-idx3-ubyte", {n, kDigitSize, kDigitSize},
              {pixels, static_cast<size_t>(n) * kDigitSize * kDigitSize});
    std::string labels;
    for (int64_t i = 0; i < n; ++i) {
      labels += static_cast<char>(digits.labels.IntAt(i));
    }
    WriteFile(split + "-labels-idx1-ubyte", {n}, labels);
  }

  TemporaryFolder folder_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_IDX_FOLDER_H_
