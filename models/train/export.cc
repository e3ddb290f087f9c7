#include "models/train/export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/note.h"
#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "graph/text/text.h"
#include "models/train/run/check_model.h"
#include "models/train/values/variable_values.h"

namespace sluice {
namespace {

constexpr const char* kFormat = "sluice.model";
constexpr int kVersion = 1;

// What the files beside the manifest are called.
struct FileNames {
  std::string graph = "graph.txt", weights = "weights.safetensors";
};
// Of a model that is about to take another one's place.
const FileNames& NextNames() {
  static const FileNames names = {"next-graph.txt", "next-weights.safetensors"};
  return names;
}

std::string ManifestPath(const std::string& directory) {
  return JoinPath(directory, "model.json");
}

// Keeps out others who would write a model into the folder, of whose files each
// would then be of one of the two.
std::unique_ptr<FileLock> LockForExport(const std::string& directory) {
  auto lock = FileSystem::Default().Lock(
      JoinPath(directory, kExportLock), fmt::format("process {}", getpid()),
      [](std::string_view line) { Note(line); });
  if (lock.status().code() == Code::kFailedPrecondition) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("'{}' is being written by another export ({}); "
                            "wait for its end or choose another folder",
                            directory, lock.status().message()));
  }
  std::unique_ptr<FileLock> held = std::move(lock).ValueOrThrow();
  if (!held->warning().empty()) Note(held->warning());
  return held;
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
  Json shape = Json::Array();
  for (int64_t d : output.shape()) shape.Add(d);
  return {{"tensor", output.name()},
          {"dtype", NameOf(output.dtype())},
          {"shape", shape}};
}

[[noreturn]] void Damaged(const std::string& path, const std::string& what) {
  throw Error(Code::kDataLoss,
              fmt::format("'{}': {}; export the model again", path, what));
}

// The value of what was read of the manifest, of `where` in it, or Damaged.
template <typename T>
T ValueOf(Result<T> read, const std::string& path,
          const std::string& where = "") {
  if (!read.ok()) Damaged(path, where + read.status().message());
  return *std::move(read);
}

JsonObject ReadManifest(const std::string& path) {
  const Result<JsonObject> manifest =
      JsonObject::Parse(FileSystem::Default().Read(path).ValueOrThrow());
  const auto format = manifest.ok() ? manifest->String("format")
                                    : Result<std::string>(manifest.status());
  if (!format.ok() || *format != kFormat) {
    Damaged(path, "not the description of an exported model");
  }
  const Result<int64_t> version = manifest->Int("version");
  if (!version.ok() || *version != kVersion) {
    Damaged(path, fmt::format("its version is not {}", kVersion));
  }
  return *manifest;
}

FileNames NamesIn(const JsonObject& manifest, const std::string& path) {
  FileNames names;
  const auto read = [&](const char* key, std::string* name) {
    if (!manifest.Has(key)) return;
    *name = ValueOf(manifest.String(key), path);
    if (!name->empty() && name->find('/') == std::string::npos) return;
    Damaged(path, fmt::format("\"{}\" is '{}', no file beside it", key, *name));
  };
  read("graph", &names.graph);
  read("weights", &names.weights);
  return names;
}

// Whether a model in the folder has its files under the names that all have in
// the end. False where there is none.
bool HasUsualNames(const std::string& directory) {
  const std::string path = ManifestPath(directory);
  try {
    return NamesIn(ReadManifest(path), path).weights == FileNames().weights;
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound || error.code() == Code::kDataLoss) {
      return false;
    }
    throw;
  }
}

// Who made the model; what is missing stays empty.
ExportInfo InfoOf(const JsonObject& manifest, const std::string& path) {
  ExportInfo info;
  if (manifest.Has("program")) {
    info.program = ValueOf(manifest.String("program"), path);
  }
  if (manifest.Has("step")) info.step = ValueOf(manifest.Int("step"), path);
  if (manifest.Has("class_names")) {
    info.class_names = ValueOf(manifest.Strings("class_names"), path);
  }
  if (manifest.Has("flags")) {
    const JsonObject flags = ValueOf(manifest.Object("flags"), path);
    for (const std::string& name : flags.names()) {
      info.flags[name] = ValueOf(flags.String(name), path);
    }
  }
  return info;
}

// The manifest's "inputs" or "outputs" looked up in the graph.
std::map<std::string, Output> LookUp(const JsonObject& manifest,
                                     const char* key, const Graph& graph,
                                     const std::string& path) {
  std::map<std::string, Output> found;
  const JsonObject entries = ValueOf(manifest.Object(key), path);
  for (const std::string& name : entries.names()) {
    const std::string where = fmt::format("\"{}\" of \"{}\": ", name, key);
    const JsonObject entry = ValueOf(entries.Object(name), path, where);
    found[name] = graph.Get(ValueOf(entry.String("tensor"), path, where));
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
                   {"inputs", Json::Object()}, {"outputs", Json::Object()}};
  if (!info.class_names.empty()) manifest["class_names"] = info.class_names;
  if (!info.flags.empty()) manifest["flags"] = info.flags;
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
  const std::string text = PrintGraph(*graph);
  const std::vector<NamedTensor> values =
      ReadVariables(inference.session(), variables);
  FileSystem& files = FileSystem::Default();
  ThrowIfError(files.MakeDirectories(directory));
  const auto lock = LockForExport(directory);
  const auto write_as = [&](const FileNames& names, const Json& described) {
    ThrowIfError(files.WriteAtomically(JoinPath(directory, names.graph), text));
    ThrowIfError(WriteSafetensors(JoinPath(directory, names.weights), values));
    ThrowIfError(files.WriteAtomically(ManifestPath(directory),
                                       described.LenientText(2) + "\n"));
  };
  // At any instant the manifest is of files that are whole and of its model:
  // the one before, then this one under other names, then under the usual ones.
  const FileNames& next = NextNames();
  if (HasUsualNames(directory)) {
    Json described = manifest;
    described["graph"] = next.graph;
    described["weights"] = next.weights;
    write_as(next, described);
  }
  write_as({}, manifest);
  for (const std::string& name : {next.graph, next.weights}) {
    const std::string path = JoinPath(directory, name);
    if (files.Exists(path).ValueOrThrow()) ThrowIfError(files.Remove(path));
  }
}

ExportInfo ReadExportInfo(const std::string& directory) {
  const std::string path = ManifestPath(directory);
  return InfoOf(ReadManifest(path), path);
}

ExportedModel::~ExportedModel() = default;

std::unique_ptr<ExportedModel> LoadExported(const std::string& directory,
                                            const SessionOptions& options) {
  const std::string path = ManifestPath(directory);
  const JsonObject manifest = ReadManifest(path);
  std::unique_ptr<ExportedModel> model(new ExportedModel());
  model->info_ = InfoOf(manifest, path);
  const FileNames names = NamesIn(manifest, path);
  const std::string graph_path = JoinPath(directory, names.graph);
  Result<std::unique_ptr<Graph>> graph =
      ParseGraph(FileSystem::Default().Read(graph_path).ValueOrThrow());
  ThrowIfError(graph.status().WithContext(graph_path));
  model->graph_ = *std::move(graph);
  // "line 3" is one of that file, not of the caller's program.
  for (const auto& node : model->graph_->nodes()) {
    node->set_location(fmt::format("{}, {}", graph_path, node->location()));
  }
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
  const std::string weights = JoinPath(directory, names.weights);
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
  const int64_t rows = feeds.empty() ? 0 : feeds[0].value.shape()[0];
  for (const auto& [name, type] : outputs_) {
    CheckExportRows(name, values[i].shape(), rows);
    outputs.Set(name, values[i++]);
  }
  return outputs;
}

}  // namespace sluice
