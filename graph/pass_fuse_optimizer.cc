// Optimizer updates side by side: those of one kind with the same scalars
// become one node with a list of variables, whose work is cut by size over all
// of them. That saves a node's fixed price for each of many small variables
// (161 tensors in ResNet-50, most of them vectors). A decay of the weights that
// was added to the gradient joins in, and then is computed where variable and
// gradient pass anyway.
//
// The price: all gradients of a list live until the last of them is there. So
// a list is closed when its gradients reach kMostGradientBytes.
#include <algorithm>

#include "graph/fuse_rules.h"

namespace sluice::passes {
namespace {

constexpr int64_t kMostGradientBytes = int64_t{256} << 20;

// An update, and the nodes of its decay where there is one.
struct Update {
  Node* apply = nullptr;
  Output gradient;  // without the decay
  double decay = 0;
  std::vector<Node*> decay_nodes;
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
      if (decay->At(0) == 0 ||
          !merger.CanMerge({&product, &add, update->apply})) {
        continue;
      }
      update->gradient = g;
      update->decay = decay->At(0);
      update->decay_nodes = {&product, &add};
      return;
    }
  }
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

// The operand `apply` of a list; where the updates have none, a constant.
Output Condition(NodeMerger& merger, Node& first) {
  const int last = first.num_inputs() - 1;
  if (last > GradientInput(first)) return first.input(last);
  Graph& graph = first.graph();
  const std::string name = graph.UniqueName(first.name() + "/apply");
  const Tensor always = Tensor::Scalar(true);
  Node& node =
      graph.AddRaw(name, name, OpTable::Global().Get("Const"),
                   {{"value", always}}, {}, {{always.dtype(), always.shape()}});
  node.set_device(first.device());
  merger.AddSource(node);
  return node.output(0);
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
           SameScalars(first, apply) &&
           (update.decay == 0 || decay == 0 || update.decay == decay) &&
           gradient_bytes < kMostGradientBytes;
  }
  void Add(Update update) {
    if (update.decay != 0) decay = update.decay;
    gradient_bytes += BytesOf(update.gradient);
    updates.push_back(std::move(update));
  }
  std::vector<Node*> Members() const {
    std::vector<Node*> members;
    for (const Update& update : updates) {
      members.insert(members.end(), update.decay_nodes.begin(),
                     update.decay_nodes.end());
      members.push_back(update.apply);
    }
    return members;
  }
};

void MergeList(NodeMerger& merger, List& list, Fusions* done) {
  if (list.updates.size() < 2 && list.decay == 0) return;
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
    if (update.decay == 0) continue;
    ++decayed;
    // The product was read and written, the sum read twice and written.
    bytes_saved += 5 * BytesOf(update.gradient);
  }
  for (int i = first.mutates(); i < GradientInput(first); ++i) {
    merged.inputs.push_back(first.input(i));
  }
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
  std::vector<List> lists;
  for (Node* node : merger.Order()) {
    if (node->op().list_op == nullptr) continue;
    // A reader of the new value reads one variable's.
    if (!merger.UsesOf(node->output(0)).empty()) continue;
    Update update = {node, node->input(GradientInput(*node)), 0, {}};
    TakeDecay(merger, &update);
    auto list = std::find_if(
        lists.begin(), lists.end(),
        [&](const List& candidate) { return candidate.Takes(update); });
    if (list == lists.end()) list = lists.insert(lists.end(), List());
    list->Add(std::move(update));
  }
  for (List& list : lists) MergeLegal(merger, std::move(list), done);
}

}  // namespace sluice::passes
