#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/sluice/commands.h"
#include "apps/sluice/json.h"
#include "apps/sluice/statistics.h"
#include "apps/sluice/tensor_file.h"
#include "io/files/without_query.h"
#include "io/summaries/event_file.h"

namespace sluice::tool {
namespace {

// Whole numbers in full, as steps and labels are read.
std::string Text(const Number& number) {
  return number.whole() ? number.ToString()
                        : fmt::format("{:.5g}", number.real());
}

// Empty for no elements.
std::string StatisticsText(const Statistics& s) {
  std::string text;
  if (s.finite > 0) {
    text =
        fmt::format("min {:<11} max {:<11} mean {:<11} std {:<12}", Text(s.min),
                    Text(s.max), Text(s.mean), Text(s.deviation));
  }
  if (s.nan > 0) text += fmt::format("{} NaN ", s.nan);
  if (s.infinite > 0) text += fmt::format("{} infinite", s.infinite);
  return text;
}

void AddStatistics(const Statistics& s, Json& json) {
  if (s.finite > 0) {
    const auto exact = [](const Number& n) {
      return n.whole() ? Json(n.integer()) : Json(n.real());
    };
    json["min"] = exact(s.min);
    json["max"] = exact(s.max);
    // JSON has no infinity.
    if (std::isfinite(s.mean)) json["mean"] = s.mean;
    if (std::isfinite(s.deviation)) json["std"] = s.deviation;
  }
  json["nan"] = s.nan;
  json["inf"] = s.infinite;
}

struct Total {
  int64_t elements = 0;
  size_t bytes = 0;
};

size_t BytesOf(const TensorFile::Item& tensor) {
  return static_cast<size_t>(tensor.shape.elements()) * SizeOf(tensor.dtype);
}

Total TotalOf(const TensorFile& file) {
  Total total;
  for (const TensorFile::Item& tensor : file.tensors) {
    total.elements += tensor.shape.elements();
    total.bytes += BytesOf(tensor);
  }
  return total;
}

void ListTensors(const TensorFile& file) {
  size_t name_width = 0;
  size_t shape_width = 0;
  for (const TensorFile::Item& tensor : file.tensors) {
    name_width = std::max(name_width, tensor.name.size());
    shape_width = std::max(shape_width, tensor.shape.ToString().size());
  }
  for (const TensorFile::Item& tensor : file.tensors) {
    std::string line = fmt::format(
        "{:<{}}  {:<8}  {:<{}}  {}", Printable(tensor.name), name_width,
        NameOf(tensor.dtype), tensor.shape.ToString(), shape_width,
        tensor.values ? StatisticsText(StatisticsOf(*tensor.values)) : "");
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
  for (const auto& [key, value] : file.metadata) {
    fmt::print("metadata {} = {}\n", Printable(key), Shortened(value));
  }
  const Total total = TotalOf(file);
  fmt::print("{} tensors, {} elements, {} bytes\n", file.tensors.size(),
             total.elements, total.bytes);
  if (file.checksummed) {
    fmt::print("checksum: {}\n",
               *file.checksummed ? "right" : "none, so damage may go unseen");
  }
}

void ListTensorsAsJson(const std::string& path, const TensorFile& file) {
  PrintJson({{"metadata", file.metadata}});
  for (const TensorFile::Item& tensor : file.tensors) {
    Json line = {{"tensor", tensor.name},
                 {"dtype", NameOf(tensor.dtype)},
                 {"shape", tensor.shape.dims()},
                 {"bytes", BytesOf(tensor)}};
    if (tensor.values && tensor.values->elements() > 0) {
      AddStatistics(StatisticsOf(*tensor.values), line);
    }
    PrintJson(line);
  }
  const Total total = TotalOf(file);
  Json last = {{"file", path},
               {"tensors", file.tensors.size()},
               {"elements", total.elements},
               {"bytes", total.bytes}};
  if (file.checksummed) last["checksum"] = *file.checksummed ? "right" : "none";
  PrintJson(last);
}

void InspectTensors(const std::string& path, bool quick, bool json) {
  const auto list = [&](const TensorFile& file) {
    json ? ListTensorsAsJson(path, file) : ListTensors(file);
  };
  const auto file = quick ? ReadHeaderOnly(path) : ReadVerified(path);
  if (file.ok()) return list(*file);
  // The header may be readable though the data are damaged.
  if (const auto header = ReadHeaderOnly(path); header.ok()) list(*header);
  throw Error(file.status());
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
                 Printable(record.tag), Shortened(record.summary));
    }
  }
  if (!json) fmt::print("{} records\n", events.records.size());
}

void InspectEvents(const std::string& path, bool json) {
  const EventFile events = ReadEvents(path).ValueOrThrow();
  if (events.records.empty() && !events.warning.empty()) {
    throw Error(Code::kDataLoss,
                fmt::format("{}: neither a safetensors nor an event file: {}",
                            WithoutQuery(path), events.warning));
  }
  ListEvents(events, json);
  if (!events.warning.empty()) {
    throw Error(Code::kDataLoss,
                fmt::format("{}: {}", WithoutQuery(path), events.warning));
  }
}

}  // namespace

void Inspect(const std::string& path, bool quick, bool json) {
  if (IsSafetensors(path)) {
    InspectTensors(path, quick, json);
  } else {
    InspectEvents(path, json);
  }
}

}  // namespace sluice::tool
