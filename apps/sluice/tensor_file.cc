#include "apps/sluice/tensor_file.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "io/checkpoints/checkpoint.h"
#include "io/files/without_query.h"

namespace sluice::tool {

// A safetensors file is one whose ninth byte opens a JSON object, behind the
// header's length.
bool IsSafetensors(const std::string& path) {
  const std::string name = WithoutQuery(path);
  if (name.find(".tfevents") != name.npos) return false;
  if (name.ends_with(".safetensors")) return true;
  const std::string begin =
      FileSystem::Default().ReadPrefix(path, 9).ValueOrThrow();
  return begin.size() == 9 && begin[8] == '{';
}

Result<TensorFile> ReadHeaderOnly(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(SafetensorsHeader header,
                          ReadSafetensorsHeader(path));
  TensorFile file;
  for (TensorInfo& t : header.tensors) {
    file.tensors.push_back({std::move(t.name), t.dtype, t.shape, std::nullopt});
  }
  file.metadata = std::move(header.metadata);
  return file;
}

Result<TensorFile> ReadVerified(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(Safetensors read, ReadSafetensors(path));
  if (!read.checksummed) {
    SLUICE_RETURN_IF_ERROR(TrainingStateOf(read, path).status());
  }
  TensorFile file;
  for (NamedTensor& t : read.tensors) {
    TensorFile::Item& item = file.tensors.emplace_back();
    item.name = std::move(t.name);
    item.dtype = t.tensor.dtype();
    item.shape = t.tensor.shape();
    item.values = std::move(t.tensor);
  }
  file.metadata = std::move(read.metadata);
  file.checksummed = read.checksummed;
  return file;
}

std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)); }, ' ');
  return text;
}

std::string Shortened(std::string text) {
  constexpr size_t kWidth = 100;
  if (text.size() > kWidth) text = text.substr(0, kWidth) + "...";
  return Printable(std::move(text));
}

}  // namespace sluice::tool
