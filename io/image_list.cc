#include "io/image_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "io/datasets.h"
#include "io/file.h"
#include "io/image.h"

namespace sluice {
namespace {

constexpr const char* kLabels = "labels.csv";
// As large a class as a mistake might give; ImageNet's whole has 21,841.
constexpr int64_t kMaxClasses = 1'000'000;

[[noreturn]] void BadLine(const std::string& path, int64_t line,
                          const std::string& text) {
  throw Error(Code::kDataLoss,
              fmt::format("'{}', line {}: wanted FILE,LABEL with a label from "
                          "0, got '{}'",
                          path, line, text));
}

ImageList ReadLabels(const std::string& directory) {
  const std::string path = JoinPath(directory, kLabels);
  std::istringstream lines(FileSystem::Posix().Read(path).ValueOrThrow());
  ImageList list;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (++number == 1 || line.empty()) continue;  // the heading
    const size_t comma = line.rfind(',');
    if (comma == std::string::npos || comma == 0) BadLine(path, number, line);
    int64_t label = -1;
    const char* end = line.data() + line.size();
    const auto parsed = std::from_chars(line.data() + comma + 1, end, label);
    if (parsed.ec != std::errc() || parsed.ptr != end || label < 0 ||
        label >= kMaxClasses) {
      BadLine(path, number, line);
    }
    list.paths.push_back(JoinPath(directory, line.substr(0, comma)));
    list.labels.push_back(label);
    list.classes = std::max(list.classes, label + 1);
  }
  return list;
}

ImageList ListClasses(const std::string& directory) {
  FileSystem& files = FileSystem::Posix();
  ImageList list;
  for (const std::string& name : files.List(directory).ValueOrThrow()) {
    const std::string folder = JoinPath(directory, name);
    const auto inside = files.List(folder);
    if (!inside.ok()) continue;  // a file
    const size_t before = list.paths.size();
    for (const std::string& file : *inside) {
      if (HasImageExtension(file)) {
        list.paths.push_back(JoinPath(folder, file));
        list.labels.push_back(list.classes);
      }
    }
    if (list.paths.size() == before) continue;
    list.class_names.push_back(name);
    ++list.classes;
  }
  return list;
}

}  // namespace

ImageList ListImages(const std::string& directory) {
  ImageList list = FileSystem::Posix().Exists(JoinPath(directory, kLabels))
                       ? ReadLabels(directory)
                       : ListClasses(directory);
  if (list.paths.empty()) {
    throw Error(Code::kNotFound,
                fmt::format("no images in '{}': wanted one sub-folder per "
                            "class with JPEG or PNG files, or images and a "
                            "labels.csv of lines FILE,LABEL",
                            directory));
  }
  return list;
}

Dataset Indices(const ImageList& list) {
  const auto n = static_cast<int64_t>(list.paths.size());
  Tensor indices(DType::kInt64, {n});
  Tensor labels(DType::kInt64, {n});
  for (int64_t i = 0; i < n; ++i) {
    indices.data<int64_t>()[i] = i;
    labels.data<int64_t>()[i] = list.labels[i];
  }
  return datasets::FromTensors(
      {{"index", std::move(indices)}, {"label", std::move(labels)}});
}

}  // namespace sluice
