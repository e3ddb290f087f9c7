// Lists of image files with their classes.
#ifndef SLUICE_IO_SOURCES_IMAGE_LIST_H_
#define SLUICE_IO_SOURCES_IMAGE_LIST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/visibility.h"
#include "io/pipeline/dataset.h"

namespace SLUICE_PUBLIC sluice {

struct ImageList {
  std::string directory;  // that they are listed from; may be empty
  std::vector<std::string> paths;
  std::vector<int64_t> labels;  // of each path
  // How many classes there are, and their names where these are known.
  int64_t classes = 0;
  std::vector<std::string> class_names = {};
  // The heading of labels.csv or a table, as it was written; empty: it has
  // none.
  std::string heading = {};
  // For a part (SplitImages), its IdentityOf.
  std::string identity = {};

  void Add(std::string path, int64_t label) {
    paths.push_back(std::move(path));
    labels.push_back(label);
  }
  // A path from the directory on.
  std::string_view Relative(size_t i) const;
};

// The images of a folder, in one of two forms:
//   one sub-folder per class with JPEG or PNG files directly in it, the classes
//   numbered in the order of the names (torchvision's ImageFolder), the images
//   sorted by path. Any other sub-folder is an error, but for the one called
//   `but`. Passed over are those whose names begin with a dot, lost+found and
//   __MACOSX;
//   images beside a file labels.csv (RFC 4180: a FILE with commas or quotes
//   goes in quotes) of a row FILE,LABEL per image, in its order, none twice.
//   LABEL is the class, a number from 0; blanks around it do not matter. A
//   first row whose LABEL is no whole number is a heading.
// With `class_names`, those of a training, the classes are numbered by these;
// a sub-folder of images that is none of them, or has the name of several, is
// an error, and so is a label beyond them; one of their sub-folders may be
// empty.
// Throws Error: kNotFound where there are no images, naming a sub-folder that
// has none, kDataLoss naming the line of labels.csv that is wrong, kOutOfRange
// naming the label, kInvalidArgument naming a sub-folder of another class or of
// several, and what the file system says of a labels.csv or a sub-folder that
// cannot be read.
ImageList ListImages(const std::string& directory,
                     const std::vector<std::string>& class_names = {},
                     const std::string& but = {});

// Whether a sub-folder of that name may be a class's: not what file systems,
// editors and zip files of macOS put there by themselves, whatever is in it.
bool MayBeClass(std::string_view name);

// Whether a path names a table of images: it ends in .csv, whatever the case,
// and is no folder.
bool IsImageTable(const std::string& path);

// The images of a table of rows FILE,LABEL as labels.csv has, FILE from the
// table's folder on. There a LABEL may be a name, too: unless all but perhaps
// the first are whole numbers, they are the names of classes, without the
// blanks around them, and classes are numbered in the order of these by bytes,
// as those of sub-folders are. Then the first row is a heading if its FILE is
// not there and does not end as an image's. With `class_names` classes are
// numbered by these, and a name that is none of them, or several, is an error,
// as is one number among names.
// Throws Error as ListImages does.
ImageList ListImagesOfTable(const std::string& path,
                            const std::vector<std::string>& class_names = {});

// The images in a folder and the folders in it, sorted by path, without labels.
// Throws Error for a folder that cannot be read.
std::vector<std::string> ImagesBelow(const std::string& directory);

// Names of the classes of which there is no image.
std::vector<std::string> ClassesWithoutImages(const ImageList& list);

// All but about a `fraction` of the images, and these. Which they are depends
// on their paths from the directory on alone: the same in every run and in a
// copy of the folder, and whether others come or go.
struct SplitList {
  ImageList training, validation;
};
SplitList SplitImages(const ImageList& list, double fraction);

// Tells lists apart: a checksum of the paths from the directory on, the labels
// and some of the files' sizes. That of a part says of which list and which
// one.
std::string IdentityOf(const ImageList& list);

// Examples of the numbers in a list, "index" (int64), and their "label"; for
// Dataset::Map to read the file paths[index]. Positions are of the list: they
// cannot be restored with another one (IdentityOf).
Dataset Indices(const ImageList& list);
// Indices of a list without files, such as one of drawn images.
Dataset Indices(const ImageList& list, const std::string& identity);

}  // namespace sluice

#endif  // SLUICE_IO_SOURCES_IMAGE_LIST_H_
