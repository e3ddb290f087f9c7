// Lists of image files with their classes.
#ifndef SLUICE_IO_IMAGE_LIST_H_
#define SLUICE_IO_IMAGE_LIST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/dataset.h"

namespace sluice {

struct ImageList {
  std::vector<std::string> paths;
  std::vector<int64_t> labels;  // of each path
  // How many classes there are, and their names where these are known.
  int64_t classes = 0;
  std::vector<std::string> class_names = {};
};

// The images of a folder, sorted by path, in one of two forms:
//   one sub-folder per class with JPEG or PNG files in it, the classes numbered
//   in the order of the names (torchvision's ImageFolder);
//   images beside a file labels.csv: a line "file,label", then one such line
//   per image with its class, a number from 0.
// Throws Error: kNotFound where there are no images, kDataLoss or kOutOfRange
// naming the line of labels.csv that is wrong.
ImageList ListImages(const std::string& directory);

// Where in a list an example stands, "index" (int64), and its "label"; for
// Dataset::Map to read what is at paths[index].
Dataset Indices(const ImageList& list);

}  // namespace sluice

#endif  // SLUICE_IO_IMAGE_LIST_H_
