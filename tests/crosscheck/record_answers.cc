#include "tests/crosscheck/record_answers.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/status.h"
#include "io/records/file_datasets.h"
#include "io/records/record_writer.h"
#include "io/records/tf_example.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string ToHex(std::string_view bytes) {
  std::string digits;
  for (const unsigned char byte : bytes) {
    digits += "0123456789abcdef"[byte / 16];
    digits += "0123456789abcdef"[byte % 16];
  }
  return digits;
}

TfFeature FeatureOf(const Json& feature) {
  if (feature.contains("ints")) {
    return feature["ints"].get<std::vector<int64_t>>();
  }
  if (feature.contains("floats")) {
    return feature["floats"].get<std::vector<float>>();
  }
  std::vector<std::string> strings;
  for (const Json& digits : feature.at("bytes")) {
    strings.push_back(FromHex(digits));
  }
  return strings;
}

// A list of no values is one of each kind.
Json JsonOf(const TfExample& example, const std::string& name) {
  if (const auto ints = example.Ints(name); ints.ok()) {
    return {{"ints", *ints}};
  }
  if (const auto floats = example.Floats(name); floats.ok()) {
    return {{"floats", *floats}};
  }
  Json strings = Json::array();
  for (const std::string_view bytes : example.BytesList(name).ValueOrThrow()) {
    strings.push_back(ToHex(bytes));
  }
  return {{"bytes", strings}};
}

Json Write(const Json& request) {
  const std::string named = request.value("compression", "");
  const Compression compression = named == "GZIP"   ? Compression::kGzip
                                  : named == "ZLIB" ? Compression::kZlib
                                                    : Compression::kNone;
  const auto file =
      RecordWriter::Create(request.at("path"), compression).ValueOrThrow();
  for (const Json& example : request.at("examples")) {
    std::vector<std::pair<std::string, TfFeature>> features;
    for (const auto& [name, feature] : example.items()) {
      features.emplace_back(name, FeatureOf(feature));
    }
    ThrowIfError(file->Write(EncodeTfExample(features).ValueOrThrow()));
  }
  ThrowIfError(file->Close());
  return Json::object();
}

Json Read(const Json& request) {
  Json examples = Json::array();
  Iterator records =
      datasets::Records({request.at("path").get<std::string>()}, {.threads = 2})
          .MakeIterator();
  Example record;
  while (records.Next(&record).ValueOrThrow()) {
    const TfExample parsed =
        TfExample::Parse(BytesOf(record["bytes"])).ValueOrThrow();
    Json example = Json::object();
    for (const std::string& name : parsed.names()) {
      example[name] = JsonOf(parsed, name);
    }
    examples.push_back(std::move(example));
  }
  return {{"examples", std::move(examples)}};
}

}  // namespace

Json RecordAnswer(const Json& request) {
  const std::string what = request.at("do");
  try {
    if (what == "write_records") return Write(request);
    if (what == "read_records") return Read(request);
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
  return nullptr;
}

}  // namespace sluice
