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
#include "io/records/tf_sequence_example.h"

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

using Features = std::vector<std::pair<std::string, TfFeature>>;

Features FeaturesOf(const Json& named) {
  Features features;
  for (const auto& [name, feature] : named.items()) {
    features.emplace_back(name, FeatureOf(feature));
  }
  return features;
}

// A tf.SequenceExample where it has "lists".
std::string Encoded(const Json& request, const Json& example) {
  if (!request.value("sequences", false)) {
    return EncodeTfExample(FeaturesOf(example)).ValueOrThrow();
  }
  std::vector<std::pair<std::string, TfFeatureList>> lists;
  for (const auto& [name, steps] : example.at("lists").items()) {
    TfFeatureList& list = lists.emplace_back(name, TfFeatureList()).second;
    for (const Json& step : steps) list.push_back(FeatureOf(step));
  }
  return EncodeTfSequenceExample(FeaturesOf(example.at("context")), lists)
      .ValueOrThrow();
}

Json Write(const Json& request) {
  const std::string named = request.value("compression", "");
  const Compression compression = named == "GZIP"   ? Compression::kGzip
                                  : named == "ZLIB" ? Compression::kZlib
                                                    : Compression::kNone;
  const auto file =
      RecordWriter::Create(request.at("path"), compression).ValueOrThrow();
  for (const Json& example : request.at("examples")) {
    ThrowIfError(file->Write(Encoded(request, example)));
  }
  ThrowIfError(file->Close());
  return Json::object();
}

// The payloads of a file.
std::vector<std::string> Payloads(const Json& request) {
  std::vector<std::string> payloads;
  Iterator records =
      datasets::Records({request.at("path").get<std::string>()}, {.threads = 2})
          .MakeIterator();
  for (Example record; records.Next(&record).ValueOrThrow();) {
    payloads.emplace_back(BytesOf(record["bytes"]));
  }
  return payloads;
}

Json Read(const Json& request) {
  Json examples = Json::array();
  for (const std::string& payload : Payloads(request)) {
    const TfExample parsed = TfExample::Parse(payload).ValueOrThrow();
    Json example = Json::object();
    for (const std::string& name : parsed.names()) {
      example[name] = JsonOf(parsed, name);
    }
    examples.push_back(std::move(example));
  }
  return {{"examples", std::move(examples)}};
}

std::vector<FeatureSpec> SpecsOf(const Json& listed) {
  std::vector<FeatureSpec> specs;
  for (const Json& one : listed) {
    const std::string kind = one.at("kind");
    FeatureSpec& spec = specs.emplace_back(FeatureSpec{
        .name = one.at("name"),
        .dtype = kind == "ints"     ? DType::kInt64
                 : kind == "floats" ? DType::kFloat32
                                    : DType::kUInt8,
        .shape = Shape(one.at("shape").get<std::vector<int64_t>>())});
    if (!one.at("missing").is_null()) {
      spec.missing = one["missing"].get<double>();
    }
  }
  return specs;
}

Json TensorsOf(const Example& example) {
  Json tensors = Json::object();
  for (const auto& [name, tensor] : example) {
    Json values = Json::array();
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if (tensor.dtype() == DType::kFloat32) {
        values.push_back(tensor.data<float>()[i]);
      } else {
        values.push_back(tensor.IntAt(i));
      }
    }
    const Shape& shape = tensor.shape();
    tensors[name] = {
        {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
        {"values", std::move(values)}};
  }
  return tensors;
}

// All of a file as one batch, or each sequence by itself.
Json Parse(const Json& request) {
  const std::vector<std::string> payloads = Payloads(request);
  const auto context = SpecsOf(request.at("context"));
  if (!request.value("sequences", false)) {
    const std::vector<std::string_view> views(payloads.begin(), payloads.end());
    const Example batch = ParseTfExamples(views, context).ValueOrThrow();
    return {{"examples", Json::array({TensorsOf(batch)})}};
  }
  const auto lists = SpecsOf(request.at("lists"));
  Json examples = Json::array();
  for (const std::string& payload : payloads) {
    examples.push_back(TensorsOf(
        ParseTfSequenceExample(payload, context, lists).ValueOrThrow()));
  }
  return {{"examples", std::move(examples)}};
}

}  // namespace

Json RecordAnswer(const Json& request) {
  const std::string what = request.at("do");
  try {
    if (what == "write_records") return Write(request);
    if (what == "read_records") return Read(request);
    if (what == "parse_records") return Parse(request);
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
  return nullptr;
}

}  // namespace sluice
