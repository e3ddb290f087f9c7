#include "io/sources/image_list.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "engine/ceil_div.h"
#include "io/counter_random.h"
#include "io/files/crc32c.h"
#include "io/files/file.h"
#include "io/files/path_kind.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"
#include "io/images/image.h"
#include "io/sources/datasets.h"
#include "io/sources/image_folder.h"
#include "io/sources/image_labels.h"

namespace sluice {
namespace {

// "a, b, c", or the first ten of more.
std::string Enumeration(const std::vector<std::string>& names) {
  constexpr size_t kMost = 10;
  const auto end = names.begin() + std::min(names.size(), kMost);
  const std::string some =
      fmt::format("{}", fmt::join(names.begin(), end, ", "));
  return names.size() > kMost
             ? fmt::format("{} and {} more", some, names.size() - kMost)
             : some;
}

// Of what may be a class by its name and has no images: throws Error where
// it is such a folder, which would be missed without a word. A class that is
// known may have none, which counts say (ClassesWithoutImages).
void RefuseClassWithoutImages(const std::string& folder, bool known) {
  if (SchemeOf(folder).empty()) {
    // A link to nothing, or what is on a disk that is away, may be a class.
    namespace fs = std::filesystem;
    std::error_code why;
    const fs::file_type type = fs::status(folder, why).type();
    if (type == fs::file_type::not_found || type == fs::file_type::none) {
      throw Error(
          Code::kNotFound,
          fmt::format("'{}': it may be a class's folder, but cannot be "
                      "looked into: {}; mend it, or move it away",
                      folder,
                      type == fs::file_type::not_found ? "a link to nothing"
                                                       : why.message()));
    }
  }
  if (!IsFolder(folder).ValueOrThrow()) return;
  const auto others = FileSystem::Default().List(folder).ValueOrThrow();
  if (others.empty() && known) return;
  throw Error(
      Code::kNotFound,
      fmt::format("'{}': a class's folder without JPEG and PNG files in it, "
                  "{}{}; put images directly into it, or move it away",
                  folder, others.empty() ? "empty" : "only ",
                  Enumeration(others)));
}

ImageList ListClasses(const std::string& directory,
                      const std::vector<std::string>& class_names,
                      const std::string& but) {
  ImageList list;
  list.class_names = class_names;
  for (const std::string& name :
       FileSystem::Default().List(directory).ValueOrThrow()) {
    if (name == but || !MayBeClass(name)) continue;
    const std::string folder = JoinPath(directory, name);
    const std::vector<std::string> images = ImagesIn(folder);
    if (images.empty()) {
      RefuseClassWithoutImages(
          folder, std::find(class_names.begin(), class_names.end(), name) !=
                      class_names.end());
      continue;
    }
    auto& names = list.class_names;
    if (class_names.empty()) names.push_back(name);
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("'{}': training had no class of that name, only "
                              "{}",
                              folder, Enumeration(names)));
    }
    if (std::find(known + 1, names.end(), name) != names.end()) {
      throw AmbiguousClass(fmt::format("'{}'", folder), name);
    }
    for (const std::string& file : images) {
      list.Add(JoinPath(folder, file), known - names.begin());
    }
  }
  list.classes = static_cast<int64_t>(list.class_names.size());
  return list;
}

// A link to a folder may lead back to one that it is in. To ask a server of
// each picture would take long.
bool IsFolderWithoutLink(const std::string& path) {
  if (!SchemeOf(path).empty()) {
    return !IsImageName(path) && IsFolder(path).ValueOrThrow();
  }
  std::error_code none;
  const auto status = std::filesystem::symlink_status(path, none);
  return std::filesystem::is_directory(status);
}

}  // namespace

bool MayBeClass(std::string_view name) {
  return !name.starts_with('.') && name != "lost+found" && name != "__MACOSX";
}

std::string_view ImageList::Relative(size_t i) const {
  std::string_view path = paths[i];
  path.remove_prefix(directory.size());
  return path.substr(std::min(path.find_first_not_of('/'), path.size()));
}

ImageList ListImages(const std::string& directory,
                     const std::vector<std::string>& class_names,
                     const std::string& but) {
  const std::string table = JoinPath(directory, kLabelsFile);
  const Result<std::string> labels = FileSystem::Default().Read(table);
  const bool none = labels.status().code() == Code::kNotFound;
  if (!none) ThrowIfError(labels.status());
  ImageList list = none ? ListClasses(directory, class_names, but)
                        : ReadImageLabels(table, *labels, class_names,
                                          /*may_be_names=*/false);
  // What the paths begin with: those of labels.csv are from its folder on,
  // which has no slash at its end.
  list.directory = none ? directory : ParentDirectory(table);
  if (list.paths.empty()) {
    throw Error(Code::kNotFound,
                fmt::format("no images in '{}': wanted one sub-folder per "
                            "class with JPEG or PNG files, or images and a "
                            "labels.csv of lines FILE,LABEL",
                            directory));
  }
  return list;
}

bool IsImageTable(const std::string& path) {
  constexpr std::string_view kEnd = ".csv";
  const std::string name = WithoutQuery(path);
  if (name.size() < kEnd.size()) return false;
  return strcasecmp(name.c_str() + name.size() - kEnd.size(), kEnd.data()) ==
             0 &&
         !IsFolder(path).ValueOrThrow();
}

ImageList ListImagesOfTable(const std::string& path,
                            const std::vector<std::string>& class_names) {
  const std::string text = FileSystem::Default().Read(path).ValueOrThrow();
  ImageList list =
      ReadImageLabels(path, text, class_names, /*may_be_names=*/true);
  list.directory = ParentDirectory(WithoutQuery(path));
  if (list.paths.empty()) {
    throw Error(Code::kNotFound,
                fmt::format("no images in '{}': wanted lines FILE,LABEL",
                            WithoutQuery(path)));
  }
  return list;
}

std::vector<std::string> ImagesBelow(const std::string& directory) {
  std::vector<std::string> paths;
  std::vector<std::string> folders = {directory};
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    for (const std::string& name :
         FileSystem::Default().List(folder).ValueOrThrow()) {
      const std::string path = JoinPath(folder, name);
      if (IsFolderWithoutLink(path)) {
        folders.push_back(path);
      } else if (IsImageName(name)) {
        paths.push_back(path);
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> ClassesWithoutImages(const ImageList& list) {
  std::vector<bool> seen(list.class_names.size());
  for (const int64_t label : list.labels) {
    if (label < static_cast<int64_t>(seen.size())) seen[label] = true;
  }
  std::vector<std::string> missing;
  for (size_t c = 0; c < seen.size(); ++c) {
    if (!seen[c]) missing.push_back(list.class_names[c]);
  }
  return missing;
}

SplitList SplitImages(const ImageList& list, double fraction) {
  if (fraction == 0) return {list, {}};
  SplitList split;
  const std::string whole = IdentityOf(list);
  split.training.identity = fmt::format("{}-but-{}", whole, fraction);
  split.validation.identity = fmt::format("{}-of-{}", whole, fraction);
  for (ImageList* part : {&split.training, &split.validation}) {
    part->directory = list.directory;
    part->classes = list.classes;
    part->class_names = list.class_names;
    part->heading = list.heading;
  }
  for (size_t i = 0; i < list.paths.size(); ++i) {
    // A checksum alone is linear: similar names have similar ones.
    const uint64_t mixed = HashKey(0, Crc32c(list.Relative(i)));
    const double at = static_cast<double>(mixed >> 11) * 0x1p-53;
    (at < fraction ? split.validation : split.training)
        .Add(list.paths[i], list.labels[i]);
  }
  return split;
}

std::string IdentityOf(const ImageList& list) {
  constexpr size_t kSizes = 1000;  // to ask for more takes long on a network
  if (!list.identity.empty()) return list.identity;
  const size_t n = list.paths.size();
  const size_t stride = CeilDiv(std::max<size_t>(n, 1), kSizes);
  std::vector<std::string> asked;
  for (size_t i = 0; i < n; i += stride) asked.push_back(list.paths[i]);
  const std::vector<int64_t> sizes = SizesOf(asked);
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    text += fmt::format("{}\n{}\n", list.Relative(i), list.labels[i]);
    if (i % stride != 0) continue;
    const int64_t size = sizes[i / stride];
    text += size < 0 ? "?\n" : fmt::format("{}\n", size);
  }
  return fmt::format("images-{:08x}", Crc32c(text));
}

Dataset Indices(const ImageList& list) {
  return Indices(list, IdentityOf(list));
}

Dataset Indices(const ImageList& list, const std::string& identity) {
  const auto n = static_cast<int64_t>(list.paths.size());
  Tensor indices(DType::kInt64, {n});
  Tensor labels(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) {
    indices.data<int64_t>()[i] = i;
    labels.data<int64_t>()[i] = list.labels[i];
  }
  return datasets::FromTensors(
      {{"index", std::move(indices)}, {"label", std::move(labels)}}, identity);
}

}  // namespace sluice
