// Op definitions: everything the engine knows about an op, in one record.
// Adding an op means adding a record to a table in graph/ops/ and its kernels;
// see docs/adding_an_op.md.
#ifndef SLUICE_GRAPH_OP_H_
#define SLUICE_GRAPH_OP_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/attributes.h"
#include "engine/conv_form.h"
#include "engine/dtype.h"
#include "engine/kernel.h"
#include "engine/shape.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

class Node;
class Output;
class InferContext;
using Outputs = std::vector<Output>;

// A list of literals, so that whole tables are constant data.
template <typename T, int N>
class FixedList {
 public:
  constexpr FixedList() = default;
  constexpr FixedList(std::initializer_list<T> items) {
    for (const T& item : items) items_[size_++] = item;
  }
  constexpr FixedList(const T* items, int size) {
    while (size_ < size) {
      items_[size_] = items[size_];
      ++size_;
    }
  }
  constexpr const T* begin() const { return items_.data(); }
  constexpr const T* end() const { return items_.data() + size_; }
  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](int i) const { return items_[i]; }

 private:
  std::array<T, N> items_{};
  int size_ = 0;
};
using Ints = FixedList<int64_t, 8>;

// A dtype variable of an op and what it may stand for.
struct TypeVar {
  const char* name = nullptr;  // "T"
  DTypeSet allowed;
};

// One input or output. `type` names a TypeVar, a dtype attribute, a dtype
// ("bool"), or is kComputeOfT or kTOrHalf. One of the inputs, and the last of
// the outputs, may be variadic: one operand or more. The last input may be
// optional where none is variadic.
struct ArgDef {
  const char* name = nullptr;
  const char* type = "T";
  bool variadic = false;
  bool optional = false;
};

// The dtype that arithmetic on the TypeVar "T" is done in: float32 if T is
// float16 or bfloat16, else T. For operands that must not be rounded to half,
// such as the statistics of a normalisation. Comes after an input of type "T".
inline constexpr const char* kComputeOfT = "compute T";

// The type of an input of dtype "T", or of float16 or bfloat16 and read as T;
// the operands of a variadic input may differ in this. The first such operand
// binds T if no earlier input did.
inline constexpr const char* kTOrHalf = "T or half";

// A constant that fits into a table.
struct AttrLiteral {
  constexpr AttrLiteral() = default;
  constexpr AttrLiteral(bool v) : type(AttrType::kBool), i(v) {}     // NOLINT
  constexpr AttrLiteral(int v) : type(AttrType::kInt), i(v) {}       // NOLINT
  constexpr AttrLiteral(int64_t v) : type(AttrType::kInt), i(v) {}   // NOLINT
  constexpr AttrLiteral(double v) : type(AttrType::kFloat), f(v) {}  // NOLINT
  constexpr AttrLiteral(const char* v)                               // NOLINT
      : type(AttrType::kString), s(v) {}
  constexpr AttrLiteral(DType v)  // NOLINT
      : type(AttrType::kDType), i(static_cast<int64_t>(v)) {}
  constexpr AttrLiteral(Ints v) : type(AttrType::kInts), ints(v) {}  // NOLINT
  static constexpr AttrLiteral OfNumber(double v) {
    AttrLiteral literal(v);
    literal.type = AttrType::kNumber;
    return literal;
  }
  // A shape, for probes.
  static constexpr AttrLiteral OfShape(Ints v) {
    AttrLiteral literal(v);
    literal.type = AttrType::kShape;
    return literal;
  }
  AttrValue ToValue() const;

  AttrType type = AttrType::kBool;
  int64_t i = 0;
  double f = 0;
  const char* s = nullptr;
  Ints ints;
};

// An attribute: {"axis", 0} has a default, {"axis", AttrType::kInt} has none
// and must be given.
struct AttrDef {
  constexpr AttrDef() = default;
  constexpr AttrDef(const char* n, AttrType t)
      : name(n), type(t), required(true) {}
  constexpr AttrDef(const char* n, AttrLiteral d)
      : name(n), type(d.type), fallback(d) {}

  const char* name = nullptr;
  AttrType type = AttrType::kBool;
  bool required = false;
  AttrLiteral fallback;
};

struct AttrSetting {
  const char* name = nullptr;
  AttrLiteral value;
};

// An operand to try an op on: elements uniform in [lo, hi] (integers too), or
// `values` in order, repeated. A shape operand is a constant of `values`.
struct ProbeInput {
  Ints shape = {};
  double lo = -1;
  double hi = 1;
  FixedList<double, 8> values = {};
  bool half = false;  // float16, for an input of type kTOrHalf
};

// Input shapes, ranges and attributes the table-walking test tries an op on.
// Choose ranges away from kinks and poles: gradients are compared with finite
// differences in float64.
struct Probe {
  FixedList<ProbeInput, 12> inputs = {};
  FixedList<AttrSetting, 8> attrs = {};
};

// Sets every output's dtype and shape from those of the inputs, or says in one
// clause what is wrong; the caller puts op, node name and source line around.
using ShapeFn = Status (*)(InferContext& context);

// Builds the gradients with respect to each input from those with respect to
// each output. dy[i] is invalid where no gradient flows into output i (never
// for an op with one output); an invalid result means no gradient.
using GradientFn = Outputs (*)(const Node& node, const Outputs& dy);

// Builds output 0 of `node` a second time, from `inputs`, which stand for the
// node's own inputs, and from the node's other outputs.
using AgainFn = Output (*)(const Node& node, const Outputs& inputs);

// For a node whose output 0, [n..., R...], consists of rows of input 0,
// [rows, R...]: returns the integer tensor [n...] of the rows' indices. Each
// slice of output 0's gradient is then the gradient of one row. Returns an
// invalid Output if the node's attributes make it anything else.
using RowsTakenFn = Output (*)(const Node& node);

// For an output of which a step fills only the first rows along dimension 0:
// returns the int64 scalar that counts them, an output or input of the node.
// The output's shape is then the most it can have, and nobody may read behind
// the counted rows. Returns an invalid Output if the whole output is filled.
using CounterFn = Output (*)(const Node& node, int output);

// Whether a node reads only the counted rows (CounterFn) of its input `input`.
using ReadsCountedFn = bool (*)(const Node& node, int input);

// The marker for ops whose derivative is zero (comparisons, integers, random):
// Autograd stops there. One that has a derivative but no rule has no gradient
// function: to differentiate through it is an error.
Outputs NotDifferentiable(const Node& node, const Outputs& dy);

// The dtype that an op's float32 operands and results of TypeVar "T" get in a
// step of mixed precision (passes::MixPrecision). Other operands keep theirs.
enum class HalfRule : uint8_t {
  kFloat32,  // stay: range or digits matter (losses, sums, exp, updates)
  kPrefer,   // become half: products and convolutions, with sums in float32
  // Become half between ops in half, else float32: ops about as accurate in
  // either, and bound by memory (elementwise, pooling, copies, normalisation).
  kFollow,
};

// Appends to `elements` those of a node's output, an integer vector or scalar,
// as far as they are known while the graph is built, and kUnknown for others.
// Looks through `depth` more nodes. Returns false if nothing is known.
using PartialFn = bool (*)(const Node& node, int depth, Shape* elements);

// The number of multiplications that a node does, each with an addition.
using MultiplyAddsFn = int64_t (*)(const Node& node);

// The thing outside the step that an op's node stands for, if any.
enum class OpKind : uint8_t {
  kComputation,  // nothing
  kConstant,     // its attribute `value`
  kVariable,     // what the device's store has under the node's origin
  kPlaceholder,  // what the caller feeds
  kFetch,        // the caller's buffer `index`, for input 0
  // An edge to another part of the step, or from it: its start and its wait.
  kSend,
  kReceive,
};

// Which code adds nodes of an op to graphs.
enum class MadeBy : uint8_t {
  kUsers,      // by its builder, a function of the op's name in graph/ops/
  kGradients,  // gradients of other ops, alone
  kEngine,     // passes, recomputation and sessions, alone
};

struct OpDef {
  const char* name = nullptr;  // CamelCase
  // The op's earlier name, which older texts of graphs have; null: none.
  const char* former_name = nullptr;
  const char* doc = nullptr;  // one line
  MadeBy made_by = MadeBy::kUsers;
  // The builder, if it is not a function of the op's name: a method
  // ("Graph::Variable"), or the builder of an op of which this is a variant.
  const char* builder = nullptr;
  OpKind kind = OpKind::kComputation;
  FixedList<ArgDef, 8> inputs = {};
  FixedList<ArgDef, 6> outputs = {{"y"}};
  FixedList<TypeVar, 3> types = {{"T", kFloating}};
  FixedList<AttrDef, 10> attrs = {};
  ShapeFn shape = nullptr;                 // null: outputs have input 0's shape
  GradientFn gradient = nullptr;           // null: an error in Gradients
  RowsTakenFn rows_taken = nullptr;        // null: it takes no rows of input 0
  CounterFn counter = nullptr;             // null: all of each output is there
  ReadsCountedFn reads_counted = nullptr;  // null: it reads all of each input

  // Traits.
  bool stateful = false;  // never folded or merged (random, variables)
  bool sink = false;      // kept even when nothing uses it (Send, Fetch)
  // All workers of a job run the nodes of such ops, in one order: each depends
  // on the one before it, also where its result is not asked for.
  bool collective = false;
  // The op has attributes for how many workers its attribute `group` has
  // ("workers") or which of them runs the op ("rank"), which
  // passes::CountWorkers fills in from the session. Collectives have "workers"
  // without this.
  bool asks_seat = false;
  bool commutative = false;  // the two inputs may be swapped
  bool elementwise = false;  // y[i] depends on x[i] alone, after broadcasting
  bool broadcasts = false;   // its kernels spread either of two operands
  bool view = false;         // output 0 is input 0's bytes: no kernel runs
  bool runs = false;         // though it is a view (SendStart, RecvWait)
  // For an op that takes long and needs the device for little of that time: the
  // op that starts it, whose `wait` then takes this op's place
  // (passes::StartCollectives).
  const char* start = nullptr;
  // For an op that only starts something: the op that waits for its end.
  // Exactly one node of that op has this op's output 0 as its input 0, and
  // until that node has run the bytes of output 0 are in use.
  const char* wait = nullptr;
  // False if no instruction runs for the op: its outputs, if any, exist before
  // the step begins (Const, Placeholder, Variable, NoOp).
  bool instruction = true;
  // The outputs depend on the inputs' shapes and dtypes alone (ShapeOf, Size),
  // so that they are constants as soon as those are known.
  bool shape_only = false;
  // Inputs whose buffer output 0 may take over when no other node reads them:
  // the kernel reads all it needs of an element before it writes there, also if
  // several of these inputs are one tensor. Requires equal size in bytes; the
  // planner checks that, and that none of the other inputs is that tensor.
  FixedList<int, 4> inplace = {};
  // This many leading inputs are variables that the op updates in place;
  // output 0 is the new value of the first. The only variable of an op may be
  // another operand as well, read element by element before it is written;
  // where there are several, that operand is a copy (OrderVariables).
  // mutates_attr names an attribute, a length, to be multiplied with.
  int mutates = 0;
  const char* mutates_attr = nullptr;
  // The op writes elements of its variable before it has read all its operands,
  // so that an operand that is the variable must be a copy (OrderVariables).
  bool scatters = false;
  // For the fusion pass: the op that does to a list of variables what this op
  // does to one.
  const char* list_op = nullptr;
  // The op assigns to its variables rather than adding to them.
  bool assigns = false;
  // For an optimizer's op: the rule of engine/semantics/optimizer.h that
  // updates each parameter, for one variable, a list of them or some rows.
  const char* rule = nullptr;

  // Whether the variables that a node updates are initialised afterwards in any
  // case; null: no.
  bool (*initializes)(const Node& node) = nullptr;

  // The function of engine/semantics/scalar.h that computes each element, if
  // its name is not the elementwise op's (for a variadic op: the one that joins
  // the operands, from left to right); and the function in its place when the
  // attribute `approximate` is set.
  const char* scalar = nullptr;
  const char* scalar_approximate = nullptr;

  // Output 0 says whether the inputs are finite; the op reads them for no other
  // purpose.
  bool asks_finite = false;

  // For a convolution: its form; and, for the pass that turns filters, the op
  // that computes the same with an OHWI filter.
  ConvForm conv = {};
  const char* ohwi_op = nullptr;
  // For the pass that fuses statistics. with_sums: for a convolution, the op
  // that also sums output 0 and its squares over all dimensions but the
  // channels. by_sums: for a normalisation, the op whose last inputs are such
  // sums of x.
  const char* with_sums = nullptr;
  const char* by_sums = nullptr;

  // Whether element i of the flat input 1 multiplies channel i % n of output 0,
  // which has n channels, and nothing else; null: no.
  bool (*scales_channels)(const Node& node) = nullptr;

  // Output 0 is the sum (or, with `averages`, the mean) of input 0 over the
  // dimensions that ReducedDims (engine/semantics/axis_form.h) returns.
  bool sums = false;
  bool averages = false;

  // For the fusion pass, other forms of a loss: the op that computes its
  // gradient from the loss's inputs, its outputs but the first, and dloss; and
  // the op that computes both the outputs and that gradient from the inputs and
  // dloss.
  const char* gradient_op = nullptr;
  const char* with_gradient = nullptr;
  // For the fusion pass, other forms of a normalisation: the op that includes
  // the ReLU behind it, and the one that also includes an addition between the
  // two, whose addend is its last input.
  const char* with_relu = nullptr;
  const char* with_add_relu = nullptr;
  // For such a fused op: the last output has a bit for each positive element of
  // output 0.
  bool relu_mask = false;

  PartialFn partial = nullptr;             // null: nothing is known
  MultiplyAddsFn multiply_adds = nullptr;  // null: none worth counting

  // How recomputation builds output 0 again if that costs less than running the
  // op again; null: it runs the op. The other outputs are small, and kept.
  AgainFn again = nullptr;

  HalfRule half = HalfRule::kFloat32;

  FixedList<Probe, 6> probes = {};

  // The number of inputs that a node with these attributes updates.
  int Mutates(const Attributes& node_attrs) const {
    return mutates_attr == nullptr
               ? mutates
               : mutates * static_cast<int>(node_attrs.Int(mutates_attr));
  }
  // The scalar function of a node with these attributes, or "".
  std::string_view ScalarFunction(const Attributes& node_attrs) const;
  // Whether a node may have `given` inputs.
  bool TakesInputs(int given) const;
  // The ArgDef of input i of a node with `given` inputs. Requires
  // TakesInputs(given).
  const ArgDef& InputArg(int i, int given) const;

 private:
  int VariadicInput() const;  // or -1
};

// The inputs of a node that a shape function reads, and the outputs it sets.
class InferContext {
 public:
  InferContext(const Node& node, std::vector<TensorType>* outputs)
      : node_(node), outputs_(outputs) {}

  const Node& node() const { return node_; }
  int num_inputs() const;
  const TensorType& type(int input) const;
  const Shape& input(int i) const { return type(i).shape; }
  const Attributes& attrs() const;

  // The values of an integer vector operand that gives a shape, kUnknown for
  // the elements that cannot be known yet. The number of elements must be
  // known. Errors name the operand.
  Result<Shape> ShapeOperand(int input) const;
  // The value of operand `input` if it is a constant, or null.
  const Tensor* constant(int input) const;

  const Shape& output(int i) const { return (*outputs_)[i].shape; }
  // dtypes are filled from the definition before the shape function runs.
  void SetOutput(int i, const Shape& shape) { (*outputs_)[i].shape = shape; }
  void SetType(int i, DType dtype) { (*outputs_)[i].dtype = dtype; }
  // For a variadic output.
  void SetNumOutputs(int n);

 private:
  const Node& node_;
  std::vector<TensorType>* outputs_;
};

// Shape functions that many ops share.
Status SameShape(InferContext& c);       // every output like input 0
Status BroadcastShape(InferContext& c);  // output 0: inputs broadcast together
Status ScalarShape(InferContext& c);     // every output []

// PartialFns that many ops share.
// The inputs' elements, one input after the other.
bool PartialOfInputs(const Node& node, int depth, Shape* elements);

// All op definitions. Thread-compatible: register before building graphs.
class OpTable {
 public:
  // The process's table, with the built-in ops.
  static OpTable& Global();

  // Throws Error when the name is taken or the record is malformed.
  void Register(const OpDef& def);
  void Register(std::span<const OpDef> defs) {
    for (const OpDef& def : defs) Register(def);
  }
  // The op's definition; null when there is none.
  const OpDef* Find(std::string_view name) const;
  // As Find, but also finds an op by its former name.
  const OpDef* FindInText(std::string_view name) const;
  // Throws Error naming near misses.
  const OpDef& Get(std::string_view name) const;
  // For error messages: the names in the table that are close to `name`.
  std::string NearMissesOf(std::string_view name) const;
  std::vector<const OpDef*> All() const;  // sorted by name

 private:
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops_;
};

}  // namespace sluice

#endif  // SLUICE_GRAPH_OP_H_
