// Runs graphs for tests/crosscheck: a child process that answers requests on
// stdin with answers on stdout, so that a crash is a finding and not the end.
//
//   request, answer = JSON on one line, "\n", the bytes of its tensors
//   tensor          = {"name", "dtype", "shape"}; its bytes, little-endian,
//                     follow those of the tensors before it
//
// {"do": "ops"} asks for the table of ops. {"do": "run"} runs a graph:
//
//   graph      its text form (graph/text/text.h)
//   gradients  [{ys, xs, seeds, recompute}], outputs by name; the results are
//              outputs "@0", "@1", ... for what follows
//   options    fuse, simplify, deterministic, executor, precision, devices,
//              seed
//   variables  [tensor]: first values; frozen: whether they stay
//   runs       [{feeds: [tensor], fetches: [name], targets: [name]}]
//
// Answers hold "runs", a list of lists of tensors, null where a gradient does
// not exist; "variables", the values at the end; or "error". A request without
// runs is answered with the "graph", gradients included, and their "names".
// remote_answers.h, record_answers.h and picture_answers.h have the others.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "graph/autograd.h"
#include "graph/session/session.h"
#include "graph/text/text.h"
#include "tests/crosscheck/picture_answers.h"
#include "tests/crosscheck/record_answers.h"
#include "tests/crosscheck/remote_answers.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

// --- The table of ops --------------------------------------------------------

// JSON has no infinities and no NaN.
Json JsonOf(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", value);
}

Json Literal(const AttrLiteral& literal) {
  switch (literal.type) {
    case AttrType::kBool:
      return literal.i != 0;
    case AttrType::kInt:
      return literal.i;
    case AttrType::kFloat:
    case AttrType::kNumber:
      return JsonOf(literal.f);
    case AttrType::kDType:
      return std::string(NameOf(static_cast<DType>(literal.i)));
    case AttrType::kInts:
    case AttrType::kShape:
      return std::vector<int64_t>(literal.ints.begin(), literal.ints.end());
    default:
      return literal.s == nullptr ? "" : literal.s;
  }
}

template <int n>
Json Arguments(const FixedList<ArgDef, n>& args) {
  Json list = Json::array();
  for (const ArgDef& arg : args) {
    list.push_back({{"name", arg.name},
                    {"type", arg.type},
                    {"variadic", arg.variadic},
                    {"optional", arg.optional}});
  }
  return list;
}

Json ProbeOf(const Probe& probe) {
  Json inputs = Json::array(), attrs = Json::object();
  for (const ProbeInput& input : probe.inputs) {
    Json values = Json::array();
    for (double value : input.values) values.push_back(JsonOf(value));
    inputs.push_back({{"shape", std::vector<int64_t>(input.shape.begin(),
                                                     input.shape.end())},
                      {"lo", input.lo},
                      {"hi", input.hi},
                      {"values", values},
                      {"half", input.half}});
  }
  for (const AttrSetting& attr : probe.attrs) {
    attrs[attr.name] = Literal(attr.value);
  }
  return {{"inputs", inputs}, {"attrs", attrs}};
}

Json Record(const OpDef& op) {
  Json types = Json::object(), attrs = Json::object(), probes = Json::array();
  for (const TypeVar& type : op.types) {
    types[type.name] = Json::array();
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (!type.allowed.Contains(dtype)) continue;
      types[type.name].push_back(std::string(NameOf(dtype)));
    }
  }
  for (const AttrDef& attr : op.attrs) {
    attrs[attr.name] = {
        {"type", std::string(NameOf(attr.type))},
        {"default", attr.required ? Json() : Literal(attr.fallback)}};
  }
  for (const Probe& probe : op.probes) probes.push_back(ProbeOf(probe));
  return {{"name", op.name},
          {"doc", op.doc},
          {"inputs", Arguments(op.inputs)},
          {"outputs", Arguments(op.outputs)},
          {"types", types},
          {"attrs", attrs},
          {"probes", probes},
          {"differentiable", op.gradient != NotDifferentiable},
          {"elementwise", op.elementwise},
          {"stateful", op.stateful},
          {"mutates", op.mutates}};
}

// --- Running -----------------------------------------------------------------

Tensor ReadTensor(const Json& json) {
  const Result<DType> dtype = ParseDType(json.at("dtype").get<std::string>());
  ThrowIfError(dtype.status());
  const auto dims = json.at("shape").get<std::vector<int64_t>>();
  Tensor tensor(*dtype, Shape(std::span<const int64_t>(dims)));
  std::cin.read(static_cast<char*>(tensor.raw()),
                static_cast<std::streamsize>(tensor.bytes()));
  return tensor;
}

// An answer's JSON and the bytes behind it.
struct Answer {
  Json json = Json::object();
  std::string bytes;

  Json Put(const Tensor& tensor) {
    bytes.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
    const auto dims = tensor.shape().dims();
    return {{"dtype", std::string(NameOf(tensor.dtype()))},
            {"shape", std::vector<int64_t>(dims.begin(), dims.end())}};
  }
};

SessionOptions OptionsOf(const Json& json) {
  SessionOptions options;
  options.fuse = json.value("fuse", true);
  options.simplify = json.value("simplify", true);
  options.deterministic = json.value("deterministic", false);
  options.seed = json.value("seed", uint64_t{1});
  options.devices = json.value("devices", std::vector<std::string>{"/cpu:0"});
  const std::string executor = json.value("executor", "auto");
  if (executor == "serial") options.executor = ExecutorMode::kSerial;
  if (executor == "dataflow") options.executor = ExecutorMode::kDataflow;
  const std::string precision = json.value("precision", "float32");
  if (precision == "float16") options.precision = Precision::kFloat16;
  if (precision == "bfloat16") options.precision = Precision::kBFloat16;
  return options;
}

// One step's request, its tensors read.
struct Step {
  std::map<std::string, Tensor> feeds;
  std::vector<std::string> fetches, targets;
};

// A graph and the gradients added to it.
class Program {
 public:
  explicit Program(const Json& request) {
    Result<std::unique_ptr<Graph>> parsed =
        ParseGraph(request.at("graph").get<std::string>());
    ThrowIfError(parsed.status());
    graph_ = std::move(*parsed);
    for (const Json& json : request.value("gradients", Json::array())) {
      Add(json);
    }
  }

  const Graph& graph() const { return *graph_; }
  // May be invalid where it is a gradient.
  Output Find(const std::string& name) const {
    return name.starts_with("@") ? gradients_.at(std::stoul(name.substr(1)))
                                 : graph_->Get(name);
  }
  Json GradientNames() const {
    Json names = Json::array();
    for (const Output& gradient : gradients_) {
      names.push_back(gradient.valid() ? Json(gradient.name()) : Json());
    }
    return names;
  }
  Operation Target(const std::string& name) const {
    Node* node = graph_->Find(name);
    if (node == nullptr) {
      throw Error(Code::kNotFound, fmt::format("no node '{}'", name));
    }
    return Operation(node);
  }

 private:
  // Gradients that do not exist are left out of the ys.
  void Add(const Json& json) {
    const std::string recompute = json.value("recompute", "none");
    GradientOptions options;
    if (recompute == "norms") options.recompute = Recompute::kNorms;
    if (recompute == "all") options.recompute = Recompute::kAll;
    const std::vector<Output> all_ys = FindAll(json, "ys");
    const std::vector<Output> all_seeds = FindAll(json, "seeds");
    std::vector<Output> ys, seeds;
    for (size_t i = 0; i < all_ys.size(); ++i) {
      if (!all_ys[i].valid()) continue;
      ys.push_back(all_ys[i]);
      if (i < all_seeds.size()) seeds.push_back(all_seeds[i]);
    }
    const std::vector<Output> xs = FindAll(json, "xs");
    if (ys.empty()) {
      gradients_.resize(gradients_.size() + xs.size());
      return;
    }
    for (const Output& gradient : Gradients(ys, xs, seeds, options)) {
      gradients_.push_back(gradient);
    }
  }
  std::vector<Output> FindAll(const Json& json, const char* key) const {
    std::vector<Output> outputs;
    for (const Json& name : json.value(key, Json::array())) {
      outputs.push_back(Find(name.get<std::string>()));
    }
    return outputs;
  }

  std::unique_ptr<Graph> graph_;
  std::vector<Output> gradients_;
};

Json RunStep(Session& session, const Program& program, const Step& step,
             Answer& answer) {
  std::vector<Feed> feeds;
  for (const auto& [name, value] : step.feeds) {
    feeds.push_back({program.Find(name), value});
  }
  std::vector<Output> fetches;
  for (const std::string& name : step.fetches) {
    const Output output = program.Find(name);
    if (output.valid()) fetches.push_back(output);
  }
  std::vector<Operation> targets;
  for (const std::string& name : step.targets) {
    targets.push_back(program.Target(name));
  }
  const std::vector<Tensor> values = session.Run(feeds, fetches, targets);
  Json list = Json::array();
  auto value = values.begin();
  for (const std::string& name : step.fetches) {
    list.push_back(program.Find(name).valid() ? answer.Put(*value++) : Json());
  }
  return list;
}

void Run(const Json& request, const std::map<std::string, Tensor>& variables,
         const std::vector<Step>& steps, Answer& answer) {
  const Program program(request);
  if (steps.empty()) {
    answer.json["graph"] = PrintGraph(program.graph());
    answer.json["names"] = program.GradientNames();
    return;
  }
  Session session(program.graph(), OptionsOf(request.value("options", Json())));
  for (const auto& [name, value] : variables) {
    session.Write(program.Find(name), value);
  }
  if (request.value("frozen", false)) session.Freeze();
  answer.json["runs"] = Json::array();
  for (const Step& step : steps) {
    answer.json["runs"].push_back(RunStep(session, program, step, answer));
  }
  answer.json["variables"] = Json::object();
  for (const auto& [name, value] : variables) {
    answer.json["variables"][name] =
        answer.Put(session.Read(program.Find(name)));
  }
}

// Reads all tensors before anything can fail, so that the next request begins
// where it should.
Answer Answered(const Json& request) {
  Answer answer;
  if (request.at("do") == "ops") {
    answer.json["ops"] = Json::array();
    for (const OpDef* op : OpTable::Global().All()) {
      answer.json["ops"].push_back(Record(*op));
    }
    return answer;
  }
  for (const auto answer_of : {RemoteAnswer, RecordAnswer, PictureAnswer}) {
    if (Json found = answer_of(request); !found.is_null()) {
      return {std::move(found), ""};
    }
  }
  std::map<std::string, Tensor> variables;
  for (const Json& json : request.value("variables", Json::array())) {
    variables[json.at("name")] = ReadTensor(json);
  }
  std::vector<Step> steps;
  for (const Json& json : request.at("runs")) {
    Step step;
    json.at("fetches").get_to(step.fetches);
    if (json.contains("targets")) json.at("targets").get_to(step.targets);
    for (const Json& feed : json.at("feeds")) {
      step.feeds[feed.at("name")] = ReadTensor(feed);
    }
    steps.push_back(std::move(step));
  }
  try {
    Run(request, variables, steps, answer);
  } catch (const Error& error) {
    return {{{"error", error.what()}}, ""};
  } catch (const std::exception& error) {
    return {{{"error", fmt::format("not an Error: {}", error.what())}}, ""};
  }
  return answer;
}

}  // namespace
}  // namespace sluice

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    sluice::Answer answer = sluice::Answered(nlohmann::json::parse(line));
    answer.json["bytes"] = answer.bytes.size();
    std::cout << answer.json.dump() << "\n" << answer.bytes << std::flush;
  }
}
