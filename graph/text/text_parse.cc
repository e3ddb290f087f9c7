#include <fmt/format.h>

#include <unordered_set>

#include "engine/catch_errors.h"
#include "graph/output_index.h"
#include "graph/text/text.h"
#include "graph/text/text_tensor.h"

namespace sluice {
namespace {

// Of one graph: a text may come from another process, and a node takes fifty
// times the memory of the text that says it.
constexpr size_t kMostNodes = size_t{1} << 20;

// Builds a graph from its lines. Errors carry the line.
class Parser {
 public:
  explicit Parser(std::string_view text)
      : scanner_(text), graph_(std::make_unique<Graph>()) {}

  Result<std::unique_ptr<Graph>> Run() {
    for (scanner_.SkipLines(); !scanner_.AtEnd(); scanner_.SkipLines()) {
      if (graph_->nodes().size() >= kMostNodes) {
        return scanner_.Fail(
            fmt::format("a graph has at most {} nodes", kMostNodes));
      }
      SLUICE_RETURN_IF_ERROR(ParseNode());
      SLUICE_RETURN_IF_ERROR(scanner_.EndOfLine());
    }
    return std::move(graph_);
  }

 private:
  struct Operands {
    std::vector<Operand> data;
    std::vector<Node*> controls;
  };

  Status ParseNode() {
    const int line = scanner_.line();
    NodeRequest request;
    SLUICE_ASSIGN_OR_RETURN(request.name, scanner_.Name("a node's name"));
    if (request.name.empty()) return scanner_.Fail("the name is empty");
    if (graph_->Find(request.name) != nullptr) {
      return scanner_.Fail(
          fmt::format("there is a node '{}' already", request.name));
    }
    SLUICE_RETURN_IF_ERROR(scanner_.Expect('='));
    SLUICE_ASSIGN_OR_RETURN(request.op, scanner_.Identifier("an op's name"));
    const OpDef* op = OpTable::Global().FindInText(request.op);
    if (op == nullptr) {
      return scanner_.Fail(
          fmt::format("unknown op '{}'{}", request.op,
                      OpTable::Global().NearMissesOf(request.op)));
    }
    request.op = op->name;
    SLUICE_ASSIGN_OR_RETURN(Operands operands, ParseOperands());
    request.inputs = std::move(operands.data);
    SLUICE_ASSIGN_OR_RETURN(request.attrs, ParseAttributes(*op));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<TensorType> types, ParseTypes());
    std::string device;
    if (scanner_.Accept('@')) {
      SLUICE_ASSIGN_OR_RETURN(device, scanner_.Device());
    }
    std::string origin = request.name;
    if (scanner_.AcceptWord("from")) {
      SLUICE_ASSIGN_OR_RETURN(origin, scanner_.Name("the origin's name"));
    }

    Node* node = nullptr;
    try {
      const LocationScope location(*graph_, fmt::format("line {}", line));
      const DeviceScope on_device(*graph_, std::move(device));
      node = &graph_->Add(std::move(request));
    } catch (const Error& error) {
      return error.status();  // names the node and its line
    }
    node->set_origin(std::move(origin));
    node->set_control_inputs(std::move(operands.controls));
    return TakeTypes(types, node);
  }

  Result<Node*> FindOperand() {
    SLUICE_ASSIGN_OR_RETURN(const std::string name,
                            scanner_.Name("an operand"));
    Node* node = graph_->Find(name);
    if (node == nullptr) {
      return scanner_.Fail(
          fmt::format("there is no node '{}' in the lines before", name));
    }
    return node;
  }

  Result<Operands> ParseOperands() {
    Operands operands;
    std::unordered_set<const Node*> controls;
    SLUICE_RETURN_IF_ERROR(scanner_.Expect('('));
    if (scanner_.Accept(')')) return operands;
    do {
      if (scanner_.Accept('^')) {
        SLUICE_ASSIGN_OR_RETURN(Node * control, FindOperand());
        if (controls.insert(control).second) {
          operands.controls.push_back(control);
        }
        continue;
      }
      if (!controls.empty()) return scanner_.Fail("wanted '^' after '^'");
      SLUICE_ASSIGN_OR_RETURN(Node * node, FindOperand());
      int64_t index = 0;
      if (scanner_.Accept(':')) {
        SLUICE_ASSIGN_OR_RETURN(index, scanner_.Int());
      }
      if (Status has = CheckOutputIndex(*node, index); !has.ok()) {
        return scanner_.Fail(has.message());
      }
      operands.data.emplace_back(node->output(static_cast<int>(index)));
    } while (scanner_.Accept(','));
    SLUICE_RETURN_IF_ERROR(scanner_.Expect(')'));
    return operands;
  }

  Result<Attributes> ParseAttributes(const OpDef& op) {
    Attributes attrs;
    if (!scanner_.Accept('{') || scanner_.Accept('}')) return attrs;
    do {
      SLUICE_ASSIGN_OR_RETURN(const std::string name,
                              scanner_.Identifier("an attribute's name"));
      const AttrDef* def = nullptr;
      for (const AttrDef& candidate : op.attrs) {
        if (candidate.name == name) def = &candidate;
      }
      if (def == nullptr) {
        return scanner_.Fail(
            fmt::format("{} has no attribute '{}'", op.name, name));
      }
      if (attrs.Has(name)) {
        return scanner_.Fail(fmt::format("'{}' is given twice", name));
      }
      SLUICE_RETURN_IF_ERROR(scanner_.Expect('='));
      SLUICE_ASSIGN_OR_RETURN(AttrValue value,
                              ParseValue(scanner_, def->type, &filled_));
      attrs.Set(name, std::move(value));
    } while (scanner_.Accept(','));
    SLUICE_RETURN_IF_ERROR(scanner_.Expect('}'));
    return attrs;
  }

  Result<std::vector<TensorType>> ParseTypes() {
    std::vector<TensorType> types;
    if (!scanner_.Accept(':')) return types;
    do {
      TensorType type;
      SLUICE_ASSIGN_OR_RETURN(type.dtype, scanner_.Type());
      SLUICE_ASSIGN_OR_RETURN(type.shape, scanner_.Dims());
      types.push_back(type);
    } while (scanner_.Accept(','));
    return types;
  }

  // Passes may know more than inference does; never something else.
  Status TakeTypes(const std::vector<TensorType>& written, Node* node) {
    if (written.empty()) return {};
    const std::vector<TensorType>& inferred = node->output_types();
    if (written.size() != inferred.size()) {
      return scanner_.Fail(fmt::format("{} has {} outputs, {} types given",
                                       node->Describe(), inferred.size(),
                                       written.size()));
    }
    for (size_t i = 0; i < written.size(); ++i) {
      if (written[i].dtype != inferred[i].dtype ||
          !Compatible(written[i].shape, inferred[i].shape)) {
        return scanner_.Fail(fmt::format(
            "output {} of {} is {}, inference says {}", i, node->Describe(),
            written[i].ToString(), inferred[i].ToString()));
      }
    }
    node->set_output_types(written);
    return {};
  }

  TextScanner scanner_;
  std::unique_ptr<Graph> graph_;
  size_t filled_ = 0;
};

}  // namespace

Result<std::unique_ptr<Graph>> ParseGraph(std::string_view text) {
  return CatchErrors([&] { return Parser(text).Run(); });
}

}  // namespace sluice
