#include "models/train/export.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "graph/text/text.h"
#include "models/train/variable_values.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "sluice.model";
constexpr int kVersion = 1;

std::string GraphPath(const std::string& directory) {
  return JoinPath(directory, "graph.txt");
}
std::string WeightsPath(const std::string& directory) {
  return JoinPath(directory, "weights.safetensors");
}
std::string ManifestPath(const std::string& directory) {
  return JoinPath(directory, "model.json");
}

// The part of a graph that `outputs` need.
std::unique_ptr<Graph> Needed(const Graph& graph, const NamedOutputs& outputs) {
  std::unordered_set<const Node*> needed;
  std::vector<const Node*> stack;
  const auto visit = [&](const Node& node) {
    if (needed.insert(&node).second) stack.push_back(&node);
  };
  for (const auto& [name, output] : outputs) visit(output.node());
  while (!stack.empty()) {
    const Node& node = *stack.back();
    stack.pop_back();
    for (const Output& input : node.inputs()) visit(input.node());
    for (const Node* control : node.control_inputs()) visit(*control);
  }
  return graph.Clone([&](const Node& node) { return needed.contains(&node); });
}

Json Described(const Output& output) {
  Json shape = Json::array();
  for (int64_t d : output.shape()) shape.push_back(d);
  return {{"tensor", output.name()},
          {"dtype", NameOf(output.dtype())},
          {"shape", shape}};
}

[[noreturn]] void Damaged(const std::string& path, const std::string& what) {
  throw Error(Code::kDataLoss,
              fmt::format("'{}': {}; export the model again", path, what));
}

Json ReadManifest(const std::string& path) {
  Json manifest = Json::parse(FileSystem::Posix().Read(path).ValueOrThrow(),
                              /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key, const Json& value) {
    return manifest.contains(key) && manifest[key] == value;
  };
  if (!manifest.is_object() || !has("format", kFormat)) {
    Damaged(path, "not the description of an exported model");
  }
  if (!has("version", kVersion)) {
    Damaged(path, fmt::format("its version is not {}", kVersion));
  }
  return manifest;
}

// Who made the model; what is missing stays empty.
ExportInfo InfoOf(const Json& manifest) {
  ExportInfo info;
  if (manifest.contains("program") && manifest["program"].is_string()) {
    info.program = manifest["program"].get<std::string>();
  }
  if (manifest.contains("step") && manifest["step"].is_number_integer()) {
    info.step = manifest["step"].get<int64_t>();
  }
  return info;
}

// The manifest's "inputs" or "outputs" looked up in the graph.
std::map<std::string, Output> LookUp(const Json& manifest, const char* key,
                                     const Graph& graph,
                                     const std::string& path) {
  std::map<std::string, Output> found;
  if (!manifest.contains(key) || !manifest[key].is_object()) {
    Damaged(path, fmt::format("it has no \"{}\"", key));
  }
  for (const auto& [name, entry] : manifest[key].items()) {
    if (!entry.is_object() || !entry.contains("tensor") ||
        !entry["tensor"].is_string()) {
      Damaged(path, fmt::format("\"{}\" of \"{}\" names no tensor", name, key));
    }
    found[name] = graph.Get(entry["tensor"].get<std::string>());
  }
  if (found.empty()) Damaged(path, fmt::format("\"{}\" is empty", key));
  return found;
}

}  // namespace

void ExportModel(const Inference& inference, const ExportInfo& info,
                 const std::string& directory) {
  const NamedOutputs& exports = inference.model().exports;
  if (exports.empty()) {
    throw Error(Code::kInvalidArgument,
                "nothing to export: the model's ModelSpec names no exports");
  }
  const std::unique_ptr<Graph> graph = Needed(inference.graph(), exports);
  Json manifest = {{"format", kFormat},        {"version", kVersion},
                   {"program", info.program},  {"step", info.step},
                   {"inputs", Json::object()}, {"outputs", Json::object()}};
  for (const auto& [name, placeholder] : inference.features()) {
    if (graph->Find(placeholder.node().name()) != nullptr) {
      manifest["inputs"][name] = Described(placeholder);
    }
  }
  for (const auto& [name, output] : exports) {
    manifest["outputs"][name] = Described(output);
  }
  std::vector<Output> variables;
  for (const Output& variable : graph->Variables()) {
    variables.push_back(inference.graph().Get(variable.name()));
  }
  FileSystem& files = FileSystem::Posix();
  ThrowIfError(files.MakeDirectories(directory));
  ThrowIfError(files.WriteAtomically(GraphPath(directory), PrintGraph(*graph)));
  ThrowIfError(WriteSafetensors(WeightsPath(directory),
                                ReadVariables(inference.session(), variables)));
  ThrowIfError(
      files.WriteAtomically(ManifestPath(directory), manifest.dump(2) + "\n"));
}

ExportedModel::~ExportedModel() = default;

std::unique_ptr<ExportedModel> LoadExported(const std::string& directory,
                                            const SessionOptions& options) {
  const std::string path = ManifestPath(directory);
  const Json manifest = ReadManifest(path);
  std::unique_ptr<ExportedModel> model(new ExportedModel());
  model->info_ = InfoOf(manifest);
  Result<std::unique_ptr<Graph>> graph =
      ParseGraph(FileSystem::Posix().Read(GraphPath(directory)).ValueOrThrow());
  ThrowIfError(graph.status().WithContext(GraphPath(directory)));
  model->graph_ = *std::move(graph);
  for (const auto& [name, input] :
       LookUp(manifest, "inputs", *model->graph_, path)) {
    model->inputs_[name] = input.type();
    model->placeholders_.push_back(input);
  }
  for (const auto& [name, output] :
       LookUp(manifest, "outputs", *model->graph_, path)) {
    model->outputs_[name] = output.type();
    model->fetches_.push_back(output);
  }
  model->session_ = std::make_unique<Session>(*model->graph_, options);
  const std::string weights = WeightsPath(directory);
  ThrowIfError(WriteVariables(*model->session_, model->graph_->Variables(),
                              ReadSafetensors(weights).ValueOrThrow().tensors,
                              Extra::kIgnored, weights));
  model->session_->Freeze();
  return model;
}

Example ExportedModel::Predict(const Example& batch) {
  std::vector<Feed> feeds;
  size_t i = 0;
  for (const auto& [name, type] : inputs_) {
    const Tensor& value = batch[name];
    if (value.dtype() != type.dtype) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("input '{}' is {}, the model wants {}", name,
                              NameOf(value.dtype()), NameOf(type.dtype)));
    }
    feeds.push_back({placeholders_[i++], value});
  }
  const std::vector<Tensor> values = session_->Run(feeds, fetches_);
  Example outputs;
  i = 0;
  for (const auto& [name, type] : outputs_) outputs.Set(name, values[i++]);
  return outputs;
}

}  // namespace sluice
