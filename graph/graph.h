// The dataflow graph: nodes are ops, edges are tensors. Every node's output
// dtypes and shapes are inferred as it is added; an invalid node fails there,
// with an Error that names the op, the node, the shapes and the caller's line.
#ifndef SLUICE_GRAPH_GRAPH_H_
#define SLUICE_GRAPH_GRAPH_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "engine/attributes.h"
#include "engine/tensor.h"
#include "engine/visibility.h"
#include "graph/op.h"

namespace SLUICE_PUBLIC sluice {

class Graph;
class ReuseVariables;

// One of a node's outputs; a plain handle, valid as long as the graph.
class Output {
 public:
  Output() = default;
  Output(Node* node, int index) : node_(node), index_(index) {}

  bool valid() const { return node_ != nullptr; }
  Node& node() const { return *node_; }
  int index() const { return index_; }
  Graph& graph() const;
  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  // "fc1/matmul", or "split:1" for an output other than the first.
  std::string name() const;

  friend bool operator==(const Output& a, const Output& b) {
    return a.node_ == b.node_ && a.index_ == b.index_;
  }
  // Orders outputs as their nodes were added; outputs of different graphs are
  // in some order.
  SLUICE_PUBLIC friend bool operator<(const Output& a, const Output& b);

 private:
  Node* node_ = nullptr;
  int index_ = 0;
};

// A node that is run for its effect.
class Operation {
 public:
  Operation() = default;
  explicit Operation(Node* node) : node_(node) {}
  Operation(const Output& output)  // NOLINT: implicit
      : node_(output.valid() ? &output.node() : nullptr) {}
  bool valid() const { return node_ != nullptr; }
  Node& node() const { return *node_; }

 private:
  Node* node_ = nullptr;
};

// An op's operand as the caller wrote it: a tensor of the graph, or a number
// that becomes a constant of the other operand's dtype, which must be able to
// hold it (CheckHolds). It records the caller's line, since its converting
// constructors run there. A bool is no operand, since `a < b` and `a == b` are
// bools: they compare handles (Less and Equal compare elements). Where one is
// meant, write Number(true).
class Operand {
 public:
  Operand(const Output& output,  // NOLINT: implicit
          std::source_location location = std::source_location::current())
      : output_(output), location_(location) {}
  Operand(const Number& number,  // NOLINT: implicit
          std::source_location location = std::source_location::current())
      : is_number_(true), number_(number), location_(location) {}
  template <typename T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
      Operand(T number,  // NOLINT: implicit
              std::source_location location = std::source_location::current())
      : is_number_(true), number_(number), location_(location) {}

  bool is_number() const { return is_number_; }
  const Number& number() const { return number_; }
  bool empty() const { return !is_number_ && !output_.valid(); }
  const Output& output() const { return output_; }
  const std::source_location& location() const { return location_; }
  // The tensor; throws Error for a number or an empty handle.
  const Output& tensor() const;
  Graph& graph() const { return tensor().graph(); }

 private:
  Output output_;
  bool is_number_ = false;
  Number number_;
  std::source_location location_;
};

// The most inputs, and the most outputs, that a node may have: as many as an
// Instruction counts (engine/runtime/plan.h).
inline constexpr int kMostOperands = UINT16_MAX;

// One op in a graph. Users read it; only passes write to it.
class Node {
 public:
  const std::string& name() const { return name_; }
  // The name when the node was built: passes and copies keep it. It keys
  // randomness and variables.
  const std::string& origin() const { return origin_; }
  const OpDef& op() const { return *op_; }
  bool Is(std::string_view op_name) const { return op_->name == op_name; }
  bool IsConstant() const { return op_->kind == OpKind::kConstant; }
  bool IsVariable() const { return op_->kind == OpKind::kVariable; }
  // VariableOptions::part_of of a variable; 0 for other nodes.
  int64_t part_of() const {
    return IsVariable() && attrs_.Has("part_of") ? attrs_.Int("part_of") : 0;
  }
  bool IsPlaceholder() const { return op_->kind == OpKind::kPlaceholder; }
  bool IsFetch() const { return op_->kind == OpKind::kFetch; }
  bool IsSend() const { return op_->kind == OpKind::kSend; }
  bool IsReceive() const { return op_->kind == OpKind::kReceive; }
  // Whether the node gives a variable its first value.
  bool IsInitializer() const {
    return mutates() > 0 && attrs_.Has("initializer") &&
           attrs_.Bool("initializer");
  }
  // Whether a kernel runs for the node.
  bool IsInstruction() const {
    return op_->instruction && (!op_->view || op_->runs);
  }
  int id() const { return id_; }  // creation order within the graph
  Graph& graph() const { return *graph_; }

  const Attributes& attrs() const { return attrs_; }
  const std::vector<Output>& inputs() const { return inputs_; }
  const Output& input(int i) const { return inputs_[i]; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  const std::vector<Node*>& control_inputs() const { return controls_; }
  const std::vector<TensorType>& output_types() const { return outputs_; }
  const TensorType& output_type(int i) const { return outputs_[i]; }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  Output output(int i) const { return {const_cast<Node*>(this), i}; }
  // How many leading inputs are variables that the node updates.
  int mutates() const { return op_->Mutates(attrs_); }
  const std::string& device() const { return device_; }  // "/cpu:0" or empty
  const std::string& location() const { return location_; }  // "model.cc:41"

  // For passes. Each change counts in the graph's version.
  void set_attr(const std::string& name, AttrValue value) {
    attrs_.Set(name, std::move(value));
    Changed();
  }
  void set_input(int i, const Output& output) {
    inputs_[i] = output;
    Changed();
  }
  void set_inputs(std::vector<Output> inputs) {
    inputs_ = std::move(inputs);
    Changed();
  }
  void set_device(std::string device) {
    device_ = std::move(device);
    Changed();
  }
  void set_origin(std::string origin) {
    origin_ = std::move(origin);
    Changed();
  }
  void set_location(std::string where) {
    location_ = std::move(where);
    Changed();
  }
  // Turns the node into another op; name, origin, device, control inputs,
  // output types and place in the order stay.
  void Become(const OpDef& op, Attributes attrs, std::vector<Output> inputs) {
    op_ = &op;
    attrs_ = std::move(attrs);
    inputs_ = std::move(inputs);
    Changed();
  }
  void set_output_types(std::vector<TensorType> types) {
    outputs_ = std::move(types);
    Changed();
  }
  void AddControlInput(Node* node);  // once; ignores itself
  void set_control_inputs(std::vector<Node*> nodes) {
    controls_ = std::move(nodes);
    Changed();
  }

  // "MatMul 'fc1/matmul'"
  std::string Describe() const;

 private:
  friend class Graph;
  inline void Changed();

  Graph* graph_ = nullptr;
  int id_ = 0;
  const OpDef* op_ = nullptr;
  std::string name_, origin_, device_, location_;
  Attributes attrs_;
  std::vector<Output> inputs_;
  std::vector<Node*> controls_;
  std::vector<TensorType> outputs_;
};

// How a variable begins: a dtype, a shape and the graph that computes the
// first value.
struct Initializer {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::function<Output(Graph& graph)> value;
};
// Initializers whose elements are all `value`, which dtype must be able to
// hold; all 0; all 1; or a copy of a tensor.
Initializer Filled(const Number& value, const Shape& shape,
                   DType dtype = DType::kFloat32);
Initializer Zeros(const Shape& shape, DType dtype = DType::kFloat32);
Initializer Ones(const Shape& shape, DType dtype = DType::kFloat32);
Initializer CopyOf(Tensor value);

struct VariableOptions {
  bool trainable = true;
  // If each worker of a job has its own part of one tensor, cut along the last
  // dimension: the size of that dimension of the whole tensor. Parts are of one
  // size, so that some end with an unused element (models/nn/parts.h). 0: the
  // variable is a whole tensor.
  int64_t part_of = 0;
};

// The arguments of Graph::Add. `name` empty: the op's name in snake case. The
// current scope is put before it, and "_1", "_2" after it when it is taken.
struct NodeRequest {
  std::string op;
  std::vector<Operand> inputs;
  Attributes attrs = {};
  std::string name = {};
};

// Thread-compatible. Nodes live as long as the graph.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  using Location = std::source_location;

  // A value fed at each step; the first dimension is often kUnknown.
  Output Placeholder(const std::string& name, DType dtype, const Shape& shape,
                     Location location = Location::current());
  // A value that outlives the step. The handle reads it; the ops of
  // graph/ops/state.h write it, one after another where a step has several
  // writes. Non-trainable ones (statistics, counters) get no gradient. Throws
  // Error if the name is taken, but for what ReuseVariables says.
  Output Variable(const std::string& name, const Initializer& initializer,
                  const VariableOptions& options = {},
                  Location location = Location::current());
  // Variables whose names `frozen` accepts are not trainable, and statistics
  // among them are not updated by their layers: fine-tuning leaves them as they
  // are. This holds for those that are made from now on, until the next call
  // (null: none is frozen from now on), and for those there are. Throws Error
  // (kFailedPrecondition), changing nothing, if one of these has an update
  // already, by Minimize or by its layer.
  void Freeze(std::function<bool(std::string_view name)> frozen,
              Location location = Location::current());
  bool Frozen(std::string_view name) const { return frozen_ && frozen_(name); }
  // A constant of the tensor's present value, which is copied if anything
  // else shares its buffer.
  Output Constant(Tensor value, const std::string& name = "const",
                  Location location = Location::current());
  // A scalar constant. Throws Error if dtype cannot hold `value`.
  Output Constant(const Number& value, DType dtype,
                  Location location = Location::current());

  // Adds any op of the table, checked and inferred. Throws Error.
  Node& Add(NodeRequest request, Location location = Location::current());

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  // Null when there is none.
  Node* Find(std::string_view name) const;
  // "name" or "name:1", as of Output::name; throws Error naming near misses,
  // and where both a node and an output of another have the name.
  Output Get(std::string_view output_name) const;
  // Variable nodes in creation order.
  std::vector<Output> Variables() const;
  std::vector<Output> TrainableVariables() const;
  // Assign nodes that give variables their first values.
  std::vector<Node*> Initializers() const;

  // Operations that every training step runs beside the optimizer's, such as
  // the update of running statistics. Minimize's result includes them. Throws
  // Error for an empty handle.
  void AddUpdate(const Operation& operation,
                 Location location = Location::current());
  const std::vector<Operation>& updates() const { return updates_; }
  // The losses that trainings of the graph have been made for, which may be
  // fetched in their steps. Minimize adds its own.
  void AddLoss(const Output& loss) { losses_.push_back(loss); }
  const std::vector<Output>& losses() const { return losses_; }

  // Counts additions, removals and changes of nodes, so that caches know when
  // to look again.
  uint64_t version() const { return version_; }

  // The full name that a new node would get if it were named `name` in the
  // current scope.
  std::string UniqueName(const std::string& name) const;
  const std::string& scope() const { return scope_; }
  const std::string& current_device() const { return device_; }

  // --- For passes -----------------------------------------------------------
  // A copy with the same names, origins, devices and order. With `keep`, only
  // nodes for which it holds; these must not depend on others.
  std::unique_ptr<Graph> Clone(
      const std::function<bool(const Node&)>& keep = nullptr) const;
  // Adds a node with everything given, without inference or scopes.
  Node& AddRaw(const std::string& name, const std::string& origin,
               const OpDef& op, Attributes attrs, std::vector<Output> inputs,
               std::vector<TensorType> outputs);
  // Adds a node like `node`, which may belong to another graph (same name,
  // origin, attributes, device, location), with `inputs` and no control inputs.
  Node& AddCopy(const Node& node, std::vector<Output> inputs);
  // Makes every user of `from` use `to` instead. This moves data edges and,
  // with `controls`, control edges from from's node to to's node as well.
  void ReplaceUses(const Output& from, const Output& to, bool controls);
  // Removes nodes for which `dead` holds; nothing alive may depend on them.
  void Remove(const std::function<bool(const Node&)>& dead);
  // The nodes in an order in which each follows its inputs and control inputs;
  // among nodes that are ready, by id, so that the order is stable. Throws an
  // Error that names a node on a cycle.
  std::vector<Node*> TopologicalOrder() const;
  // Makes `order`, which holds every node once, the order of the nodes and ids.
  void Renumber(const std::vector<Node*>& order);
  // The output types that inference gives a node, or why the node is invalid.
  static Result<std::vector<TensorType>> InferredTypes(const Node& node);
  // Runs dtype and shape inference on one node again.
  static Status Infer(Node& node);

 private:
  friend class Node;
  friend class NameScope;
  friend class DeviceScope;
  friend class ControlScope;
  friend class LocationScope;
  friend class ReuseVariables;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::string, Node*> by_name_;
  mutable std::unordered_map<std::string, int> next_suffix_;
  std::vector<Operation> updates_;
  std::vector<Output> losses_;
  std::function<bool(std::string_view name)> frozen_;
  uint64_t version_ = 0;
  int next_id_ = 0;
  std::string scope_;                      // "tower/fc1/" or empty
  std::string device_;                     // of new nodes
  std::vector<Node*> controls_;            // of new nodes
  std::string location_;                   // of new nodes, when not empty
  const ReuseVariables* reuse_ = nullptr;  // the innermost
};

void Node::Changed() {
  ++graph_->version_;
}

// "model.cc:41"
std::string FormatLocation(const std::source_location& location);

// The value of a constant; null for any other output.
const Tensor* ConstantValue(const Output& output);

// A place for names: `scope / "conv1"` is where a layer puts its nodes.
class Scope {
 public:
  explicit Scope(Graph& graph, std::string name = "")
      : graph_(&graph), name_(std::move(name)) {}
  Graph& graph() const { return *graph_; }
  const std::string& name() const { return name_; }
  Scope operator/(const std::string& child) const {
    return Scope(*graph_, name_.empty() ? child : name_ + "/" + child);
  }

 private:
  Graph* graph_;
  std::string name_;
};

// RAII: names of nodes added meanwhile begin with the scope's.
class NameScope {
 public:
  NameScope(Graph& graph, const std::string& name);  // below the current scope
  explicit NameScope(const Scope& scope);            // exactly this scope
  ~NameScope() { graph_.scope_ = std::move(saved_); }
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  Graph& graph_;
  std::string saved_;
};

// RAII: nodes added meanwhile go to `device` ("/cpu:1"; empty: wherever).
class DeviceScope {
 public:
  DeviceScope(Graph& graph, std::string device)
      : graph_(graph),
        saved_(std::exchange(graph.device_, std::move(device))) {}
  ~DeviceScope() { graph_.device_ = std::move(saved_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Graph& graph_;
  std::string saved_;
};

// RAII: nodes added meanwhile run after `operations`. Throws Error where one is
// an empty handle.
class ControlScope {
 public:
  ControlScope(Graph& graph, const std::vector<Operation>& operations);
  ~ControlScope() { graph_.controls_ = std::move(saved_); }
  ControlScope(const ControlScope&) = delete;
  ControlScope& operator=(const ControlScope&) = delete;

 private:
  Graph& graph_;
  std::vector<Node*> saved_;
};

// RAII: nodes added meanwhile are said to come from `location`, so that a
// layer's or gradient's nodes name their user's line. The outermost one wins.
class LocationScope {
 public:
  LocationScope(Graph& graph, const std::source_location& location);
  LocationScope(Graph& graph, const std::string& location)
      : graph_(graph), owner_(graph.location_.empty()) {
    if (owner_) graph_.location_ = location;
  }
  ~LocationScope() {
    if (owner_) graph_.location_.clear();
  }
  LocationScope(const LocationScope&) = delete;
  LocationScope& operator=(const LocationScope&) = delete;

 private:
  Graph& graph_;
  bool owner_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_GRAPH_H_
