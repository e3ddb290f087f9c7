// Optimizer updates side by side: those of one kind with the same scalars
// become one node with a list of variables, whose work is cut by size over all
// of them. That saves a node's fixed price for each of many small variables
// (161 tensors in ResNet-50, most of them vectors). A decay of the weights that
// was added to the gradient joins in, and then is computed where variable and
// gradient pass anyway. So does the scalar that gradients are multiplied by
// when the loss was scaled; the check that all of them are finite then
// multiplies them itself. And so do the casts of half gradients, which both
// read as they are.
//
// The price: all gradients of a list live until the last of them is there. So
// a list is closed when its gradients reach kMostGradientBytes, and takes those
// alone that come from one collective: while the next is under way, they are
// applied.
#include <algorithm>
#include <optional>
#include <set>

#include "graph/passes/fuse_rules.h"

namespace sluice::passes {
namespace {

constexpr int64_t kMostGradientBytes = int64_t{256} << 20;

// An update, and the nodes that make its gradient of another.
struct Update {
  Node* apply = nullptr;
  Output gradient;  // without the decay and the scale
  double decay = 0;
  Output scale = {};  // invalid where there is none
  // That the gradient comes from, if that is all that the update waits for.
  const Node* collective = nullptr;
  std::vector<Node*> gradient_nodes = {};

  std::vector<Node*> Members() const {
    std::vector<Node*> members = gradient_nodes;
    members.push_back(apply);
    return members;
  }
};

// Finds gradient = g + decay * variable, each used only here.
void TakeDecay(const NodeMerger& merger, Update* update) {
  Node& add = update->gradient.node();
  const Output& variable = update->apply->input(0);
  if (!add.Is("Add") || merger.UsesOf(add.output(0)).size() != 1) return;
  for (int i : {0, 1}) {
    Node& product = add.input(i).node();
    const Output& g = add.input(1 - i);
    if (!product.Is("Mul") || g.shape() != variable.shape() ||
        merger.UsesOf(product.output(0)).size() != 1) {
      continue;
    }
    for (int j : {0, 1}) {
      const Tensor* decay = ConstantValue(product.input(j));
      if (decay == nullptr || decay->elements() != 1 ||
          product.input(1 - j) != variable) {
        continue;
      }
      if (decay->At(0) == 0 || IsVariable(g) ||
          !merger.CanMerge({&product, &add, update->apply})) {
        continue;
      }
      update->gradient = g;
      update->decay = decay->At(0);
      update->gradient_nodes = {&product, &add};
      return;
    }
  }
}

// The g of product = g * scale, both float32 and scale a scalar. Neither may be
// a variable: that must be read where it is read now.
std::optional<Output> UnscaledOf(const Output& product, const Output& scale) {
  Node& node = product.node();
  if (!node.Is("Mul") || product.dtype() != DType::kFloat32 ||
      scale.shape() != Shape() || IsVariable(scale)) {
    return {};
  }
  for (int i : {1, 0}) {
    const Output& g = node.input(1 - i);
    if (node.input(i) == scale && g.shape() == product.shape() &&
        !IsVariable(g)) {
      return g;
    }
  }
  return {};
}

// The half tensor that this one widens, or invalid. Not a variable, which must
// be read where it is read now.
Output HalfOf(const Output& gradient) {
  const Node& cast = gradient.node();
  const bool widens = cast.Is("Cast") && IsHalf(cast.input(0).dtype()) &&
                      !IsHalf(gradient.dtype()) && IsFloating(gradient.dtype());
  return widens && !IsVariable(cast.input(0)) ? cast.input(0) : Output();
}

// Makes AllFinite of products with one scale, which only updates use otherwise,
// AllFiniteScaled: only they use them then.
void ScaleChecks(NodeMerger& merger, const std::vector<Update>& updates) {
  std::set<Output> gradients;
  for (const Update& update : updates) gradients.insert(update.gradient);
  const auto scaled_by = [&](const Node& check, const Output& scale) {
    Outputs inputs = {scale};
    for (const Output& product : check.inputs()) {
      const std::optional<Output> g = UnscaledOf(product, scale);
      if (!g || !gradients.contains(product) ||
          merger.UsesOf(product).size() != 2) {
        return Outputs();
      }
      const Output half = HalfOf(*g);
      inputs.push_back(half.valid() ? half : *g);
    }
    return inputs;
  };
  for (Node* node : merger.Order()) {
    if (!node->Is("AllFinite")) continue;
    if (node->num_inputs() == kMostOperands) continue;  // the scale is one more
    const Node& product = node->input(0).node();
    if (!product.Is("Mul")) continue;
    for (int i : {1, 0}) {
      const Outputs inputs = scaled_by(*node, product.input(i));
      if (inputs.empty()) continue;
      merger.Merge({node}, *node,
                   {.op = &OpTable::Global().Get("AllFiniteScaled"),
                    .inputs = inputs,
                    .types = {node->output_type(0)},
                    .outputs = {{node->output(0), 0}}});
      break;
    }
  }
}

// Finds gradient = g * scale, used only here.
void TakeScale(const NodeMerger& merger, Update* update) {
  Node& product = update->gradient.node();
  if (!product.Is("Mul") || merger.UsesOf(update->gradient).size() != 1) return;
  for (int i : {1, 0}) {
    const std::optional<Output> g =
        UnscaledOf(update->gradient, product.input(i));
    if (!g) continue;
    std::vector<Node*> members = update->Members();
    members.push_back(&product);
    if (!merger.CanMerge(members)) return;
    update->scale = product.input(i);
    update->gradient = *g;
    update->gradient_nodes.push_back(&product);
    return;
  }
}

// Finds a gradient that is half and widened only for this.
void TakeHalf(const NodeMerger& merger, Update* update) {
  const Output half = HalfOf(update->gradient);
  if (!half.valid() || merger.UsesOf(update->gradient).size() != 1) return;
  std::vector<Node*> members = update->Members();
  members.push_back(&update->gradient.node());
  if (!merger.CanMerge(members)) return;
  update->gradient_nodes.push_back(&update->gradient.node());
  update->gradient = half;
}

// The collective that these bytes are a part of, or null.
const Node* CollectiveOf(const Output& gradient) {
  const Node* node = &gradient.node();
  while (node->op().view || node->Is("Slice")) node = &node->input(0).node();
  return node->op().collective ? node : nullptr;
}

// Operands: variables, scalars, the gradient and, optional, `apply`.
int GradientInput(const Node& apply) {
  return apply.op().inputs.size() - 2;
}

bool SameScalars(const Node& a, const Node& b) {
  if (a.num_inputs() != b.num_inputs()) return false;
  for (int i = a.mutates(); i < a.num_inputs(); ++i) {
    if (i != GradientInput(a) && a.input(i) != b.input(i)) return false;
  }
  return true;
}

// `apply` is computed from all gradients.
bool HasCondition(const Node& apply) {
  return apply.num_inputs() - 1 > GradientInput(apply);
}

Output Condition(NodeMerger& merger, const Node& first) {
  return HasCondition(first)
             ? first.input(first.num_inputs() - 1)
             : merger.AddConstant(first, "apply", Tensor::Scalar(true));
}

// Of a list of so many: variables and gradients, scalars, the gradients' scale
// and `apply`.
size_t Operands(const Node& apply, size_t updates) {
  const int scalars = GradientInput(apply) - apply.mutates();
  return static_cast<size_t>(apply.mutates() + 1) * updates +
         static_cast<size_t>(scalars + 2);
}

// Updates that one node can do.
struct List {
  std::vector<Update> updates;
  double decay = 0;  // of those that have any
  int64_t gradient_bytes = 0;

  bool Takes(const Update& update) const {
    const Node& first = *updates[0].apply;
    const Node& apply = *update.apply;
    return &first.op() == &apply.op() && first.attrs() == apply.attrs() &&
           first.device() == apply.device() &&
           first.input(0).dtype() == apply.input(0).dtype() &&
           SameScalars(first, apply) && updates[0].scale == update.scale &&
           updates[0].collective == update.collective &&
           (update.decay == 0 || decay == 0 || update.decay == decay) &&
           gradient_bytes < kMostGradientBytes &&
           Operands(first, updates.size() + 1) <= kMostOperands;
  }
  void Add(Update update) {
    if (update.decay != 0) decay = update.decay;
    gradient_bytes += BytesOf(update.gradient);
    updates.push_back(std::move(update));
  }
  std::vector<Node*> Members() const {
    std::vector<Node*> members;
    for (const Update& update : updates) {
      const std::vector<Node*> more = update.Members();
      members.insert(members.end(), more.begin(), more.end());
    }
    return members;
  }
};

void MergeList(NodeMerger& merger, List& list, Fusions* done) {
  if (list.updates.empty()) return;
  const Output scale = list.updates[0].scale;
  if (list.Members().size() < 2) return;
  std::stable_partition(list.updates.begin(), list.updates.end(),
                        [](const Update& u) { return u.decay != 0; });
  Node& first = *list.updates[0].apply;
  NodeMerger::Merged merged;
  merged.op = &OpTable::Global().Get(first.op().list_op);
  merged.attrs = first.attrs();
  int64_t decayed = 0, bytes_saved = 0;
  for (int kind = 0; kind <= first.mutates(); ++kind) {
    for (const Update& update : list.updates) {
      merged.inputs.push_back(kind < first.mutates() ? update.apply->input(kind)
                                                     : update.gradient);
    }
  }
  for (const Update& update : list.updates) {
    const int64_t bytes = BytesOf(update.apply->input(0));
    // The half gradient was read, the other written and read instead of it.
    if (IsHalf(update.gradient.dtype())) bytes_saved += 2 * bytes;
    // The gradient was read, the product written.
    if (scale.valid()) bytes_saved += 2 * bytes;
    if (update.decay == 0) continue;
    ++decayed;
    // The product was read and written, the sum read twice and written.
    bytes_saved += 5 * bytes;
  }
  for (int i = first.mutates(); i < GradientInput(first); ++i) {
    merged.inputs.push_back(first.input(i));
  }
  merged.inputs.push_back(
      scale.valid()
          ? scale
          : merger.AddConstant(first, "gradient_scale", Tensor::Scalar(1.0f)));
  merged.inputs.push_back(Condition(merger, first));
  merged.attrs.Set("variables", static_cast<int64_t>(list.updates.size()));
  merged.attrs.Set("gradient_decay", list.decay);
  merged.attrs.Set("decayed", decayed);
  merged.types = {first.output_type(0)};
  MergeAs(merger, list.Members(), *list.updates[0].apply, merged, bytes_saved,
          done);
}

// Merges what can be merged: all at once, or else as many as fit.
void MergeLegal(NodeMerger& merger, List list, Fusions* done) {
  if (merger.CanMerge(list.Members())) return MergeList(merger, list, done);
  List rest;
  List fits;
  for (Update& update : list.updates) {
    List tried = fits;
    tried.Add(update);
    if (merger.CanMerge(tried.Members())) {
      fits = std::move(tried);
    } else {
      rest.Add(std::move(update));
    }
  }
  MergeList(merger, fits, done);
  if (!rest.updates.empty() && !fits.updates.empty()) {
    MergeLegal(merger, std::move(rest), done);
  }
}

}  // namespace

void FuseOptimizers(NodeMerger& merger, Fusions* done) {
  std::vector<Update> updates;
  for (Node* node : merger.Order()) {
    if (node->op().list_op == nullptr) continue;
    // A reader of the new value reads one variable's.
    if (!merger.UsesOf(node->output(0)).empty()) continue;
    Update update = {node, node->input(GradientInput(*node))};
    TakeDecay(merger, &update);
    // Another variable's bytes are read before that one's update.
    if (IsVariable(update.gradient)) continue;
    updates.push_back(std::move(update));
  }
  ScaleChecks(merger, updates);
  std::vector<List> lists;
  for (Update& update : updates) {
    TakeScale(merger, &update);
    TakeHalf(merger, &update);
    if (!update.scale.valid() && !HasCondition(*update.apply)) {
      update.collective = CollectiveOf(update.gradient);
    }
    auto list = std::find_if(
        lists.begin(), lists.end(),
        [&](const List& candidate) { return candidate.Takes(update); });
    if (list == lists.end()) list = lists.insert(lists.end(), List());
    list->Add(std::move(update));
  }
  for (List& list : lists) MergeLegal(merger, std::move(list), done);
}

}  // namespace sluice::passes
