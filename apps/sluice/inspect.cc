#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "io/event_file.h"
#include "io/safetensors.h"

namespace sluice::tool {
namespace {

enum class Kind { kSafetensors, kEvents };

// By the name; else a safetensors file is one whose ninth byte opens a JSON
// object, behind the header's length.
Kind KindOf(const std::string& path) {
  if (path.find(".tfevents") != path.npos) return Kind::kEvents;
  if (path.ends_with(".safetensors")) return Kind::kSafetensors;
  const std::string begin =
      FileSystem::Posix().ReadPrefix(path, 9).ValueOrThrow();
  return begin.size() == 9 && begin[8] == '{' ? Kind::kSafetensors
                                              : Kind::kEvents;
}

// One line of printable characters, cut where it is long.
std::string Shortened(std::string text) {
  constexpr size_t kWidth = 100;
  if (text.size() > kWidth) text = text.substr(0, kWidth) + "...";
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return std::iscntrl(static_cast<unsigned char>(c)); }, ' ');
  return text;
}

void ListTensors(const SafetensorsHeader& header) {
  size_t width = 0;
  int64_t elements = 0;
  for (const TensorInfo& tensor : header.tensors) {
    width = std::max(width, tensor.name.size());
    elements += tensor.shape.elements();
  }
  for (const TensorInfo& tensor : header.tensors) {
    fmt::print("{:<{}}  {:<8}  {}\n", tensor.name, width, NameOf(tensor.dtype),
               tensor.shape.ToString());
  }
  for (const auto& [key, value] : header.metadata) {
    fmt::print("metadata {} = {}\n", key, Shortened(value));
  }
  fmt::print("{} tensors, {} elements, {} bytes\n", header.tensors.size(),
             elements, header.data_bytes);
}

void ListTensorsAsJson(const SafetensorsHeader& header) {
  PrintJson({{"metadata", header.metadata}});
  for (const TensorInfo& tensor : header.tensors) {
    PrintJson({{"tensor", tensor.name},
               {"dtype", NameOf(tensor.dtype)},
               {"shape", tensor.shape.dims()},
               {"bytes", tensor.end - tensor.begin}});
  }
}

void ListEvents(const EventFile& events, bool json) {
  for (const EventRecord& record : events.records) {
    if (json) {
      Json line = {{"wall_time", record.wall_time},
                   {"step", record.step},
                   {"kind", record.kind},
                   {"tag", record.tag},
                   {"summary", record.summary}};
      if (record.kind == "scalar") line["value"] = record.value;
      PrintJson(line);
    } else {
      fmt::print("step {:<8}  {:<9}  {}  {}\n", record.step, record.kind,
                 record.tag, Shortened(record.summary));
    }
  }
  if (!json) fmt::print("{} records\n", events.records.size());
}

}  // namespace

void Inspect(const std::string& path, bool json) {
  if (KindOf(path) == Kind::kSafetensors) {
    const SafetensorsHeader header = ReadSafetensorsHeader(path).ValueOrThrow();
    json ? ListTensorsAsJson(header) : ListTensors(header);
    return;
  }
  const EventFile events = ReadEvents(path).ValueOrThrow();
  if (events.records.empty() && !events.warning.empty()) {
    throw Error(Code::kDataLoss,
                fmt::format("{}: neither a safetensors nor an event file: {}",
                            path, events.warning));
  }
  ListEvents(events, json);
  if (!events.warning.empty()) {
    throw Error(Code::kDataLoss, fmt::format("{}: {}", path, events.warning));
  }
}

}  // namespace sluice::tool
