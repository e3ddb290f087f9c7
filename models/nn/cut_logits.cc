#include "models/nn/cut_logits.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "engine/runtime/subtrees.h"
#include "graph/ops/array.h"
#include "graph/ops/collective.h"
#include "graph/ops/control.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/index.h"
#include "graph/ops/matmul.h"
#include "graph/ops/reduce.h"
#include "graph/ops/shape.h"
#include "graph/ops/slice.h"
#include "models/nn/parts.h"

namespace sluice {
namespace {

[[noreturn]] void Refuse(const Scope& scope, const Operand& x,
                         const std::string& why) {
  throw Error(Code::kInvalidArgument,
              fmt::format("Classifier '{}': {} ({})", scope.name(), why,
                          FormatLocation(x.location())));
}

// Classes LeavesOf(classes, rank, workers).
Output Begin(const Output& rank, int64_t classes, int64_t workers) {
  return rank * classes / workers;
}
Output SizeFrom(const Output& begin, const Output& rank, int64_t classes,
                int64_t workers) {
  return Begin(rank + 1, classes, workers) - begin;
}

}  // namespace

CutLogits::CutLogits(const Scope& scope, const Operand& x,
                     const layers::ClassifierOptions& options)
    : scope_(scope),
      classes_(options.classes),
      workers_(options.workers),
      share_(options.share),
      width_(PartWidth(classes_, workers_)) {
  Graph& graph = scope.graph();
  const Shape& shape = x.output().shape();
  if (classes_ < workers_) {
    Refuse(scope, x,
           fmt::format("{} classes cannot be cut over {} workers", classes_,
                       workers_));
  }
  if (share_ < 1) {
    Refuse(scope, x,
           fmt::format("a worker's share of a batch must be positive, got {}",
                       share_));
  }
  LocationScope location(graph, x.location());
  NameScope names(scope);
  rank_ = WorkerRank(graph);
  begin_ = Begin(rank_, classes_, workers_);
  size_ = SizeFrom(begin_, rank_, classes_, workers_);
  examples_ = Reshape(Slice(ShapeOf(x), {0}, {1}), {});
  if (classes_ % workers_ != 0) {
    is_class_ = Less(Range(graph, width_), size_);
  }

  const DType dtype = x.output().dtype();
  const Output weights = Variable("weights", options.weights,
                                  {shape[1], classes_}, dtype, x.location());
  const Output bias =
      Variable("bias", options.bias, {classes_}, dtype, x.location());
  const Output product =
      BiasAdd(MatMul(Gathered(x.output(), "features"), weights), bias);
  // A class of this worker's in place of what is none, so that the largest is
  // one of a class.
  logits_ = OfClasses(product, Slice(product, {0, 0}, {-1, 1}));

  // Logits less the largest are never added to it: of those that are large it
  // would take the last digits of the loss.
  const Output mine = StopGradient(Max(logits_, {1}));
  // Where all classes of this worker's are masked there is no such number: -inf
  // less -inf would be NaN, here and from here everywhere.
  const double masked = -std::numeric_limits<double>::infinity();
  const Output shift = Select(Equal(mine, masked), ZerosLike(mine), mine);
  const Output apart = logits_ - ExpandDims(shift, 1);
  const Output sums =
      AllGather(ExpandDims(Stack({mine, Sum(OfClasses(Exp(apart), 0), {1}),
                                  Sum(OfClasses(apart, 0), {1})}),
                           0),
                "sums", {}, workers_);
  const std::vector<Output> of_all = Unstack(sums, 1);  // each [workers, rows]
  const Output largest = StopGradient(of_all[0]);
  most_ = Max(largest, {0});
  const Output below = largest - most_;
  log_sum_ = Log(Sum(of_all[1] * Exp(below), {0}));
  std::vector<double> sizes;
  for (int64_t rank = 0; rank < workers_; ++rank) {
    const LeafRange classes = LeavesOf(classes_, rank, workers_);
    sizes.push_back(static_cast<double>(classes.size()));
  }
  const Output of_parts =
      graph.Constant(Tensor::Array<double>({workers_, 1}, sizes).Cast(dtype));
  sum_ = Sum(of_all[2] + of_parts * below, {0});
}

// The first values are those of the whole: one that draws numbers by the names
// of nodes and their places draws the same.
Output CutLogits::Variable(const char* name, const initializers::Rule& rule,
                           const Shape& whole, DType dtype,
                           const std::source_location& where) const {
  const Initializer all = rule(whole, dtype);
  const auto part = [value = all.value, classes = classes_, workers = workers_,
                     width = width_, axis = whole.rank() - 1](Graph& graph) {
    const Output of_all = value(graph);
    const Output rank = WorkerRank(graph);
    const Output begin = Begin(rank, classes, workers);
    const Output columns = Range(graph, width);
    const Output mine =
        Gather(of_all, Minimum(begin + columns, classes - 1), {.axis = axis});
    if (classes % workers == 0) return mine;
    return Select(Less(columns, SizeFrom(begin, rank, classes, workers)), mine,
                  0);
  };
  return scope_.graph().Variable(name, {dtype, WholeShape(whole, width_), part},
                                 {.part_of = classes_}, where);
}

Output CutLogits::Gathered(const Output& x, const char* name) const {
  Graph& graph = scope_.graph();
  // For who has more examples: the error of Fill has this name.
  NameScope names(graph, fmt::format("missing_from_share_of_{}", share_));
  const Shape& shape = x.shape();
  Output missing = Reshape(share_ - examples_, {1});
  std::vector<int64_t> rows = {workers_ * share_};
  if (shape.rank() > 1) {
    missing = Concat({missing, graph.Constant(Tensor::Vector<int64_t>(
                                   std::vector<int64_t>{shape[1]}))},
                     0);
    rows.push_back(shape[1]);
  }
  const Output filled = Concat({x, Fill(graph, missing, 0, x.dtype())}, 0);
  return Reshape(AllGather(filled, name, {}, workers_), Shape(rows));
}

Output CutLogits::Own(const Output& of_rows) const {
  const Output first = rank_ * share_;
  return Gather(of_rows, Range(first, first + examples_, 1));
}

Output CutLogits::OfClasses(const Output& columns,
                            const Operand& others) const {
  return is_class_.valid() ? Select(is_class_, columns, others) : columns;
}

const CutLogits::Labelled& CutLogits::LabelledBy(const Operand& labels) {
  // Others would broadcast.
  if (labels.tensor().shape().rank() != 1) {
    Refuse(scope_, labels,
           fmt::format("wanted a label for each example, [n], got {}",
                       labels.tensor().shape().ToString()));
  }
  Labelled& known = labelled_[labels.tensor()];
  if (known.labels.valid()) return known;
  Graph& graph = scope_.graph();
  // Looked up among the classes, so that one which is none fails, named, and
  // where it is.
  const Output mine = Gather(Range(graph, classes_), labels);
  known.labels = Gathered(mine, "labels");
  const Output column = known.labels - begin_;
  const Output here = LogicalAnd(GreaterEqual(column, 0), Less(column, size_));
  const Output logits = Gather(logits_, Clip(column, 0, width_ - 1),
                               {.axis = 1, .batch_dims = 1});
  known.logits =
      AllReduce(Select(here, logits, 0), Reduction::kSum, "logits_of_labels");
  return known;
}

Output CutLogits::CrossEntropy(const Operand& labels,
                               const CrossEntropyOptions& options) {
  LocationScope location(scope_.graph(), labels.location());
  NameScope names(scope_ / "cross_entropy");
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    Refuse(
        scope_, labels,
        fmt::format("label_smoothing must lie in [0, 1], got {}", smoothing));
  }
  const Output of_label = LabelledBy(labels).logits - most_;
  if (smoothing == 0) return Own(log_sum_ - of_label);
  return Own(log_sum_ - (1 - smoothing) * of_label -
             smoothing / static_cast<double>(classes_) * sum_);
}

Output CutLogits::Count(const Output& condition) const {
  const Output mine =
      is_class_.valid() ? LogicalAnd(condition, is_class_) : condition;
  return AllReduce(Sum(Cast(mine, DType::kFloat32), {1}), Reduction::kSum,
                   "rated_higher");
}

// Whether the label is where ArgMax would be: the first of the largest.
Output CutLogits::Accuracy(const Operand& labels) {
  LocationScope location(scope_.graph(), labels.location());
  NameScope names(scope_ / "accuracy");
  const Labelled& by = LabelledBy(labels);
  const Output of_label = ExpandDims(by.logits, 1);
  const Output classes = begin_ + Range(scope_.graph(), width_);
  const Output before = LogicalAnd(Equal(logits_, of_label),
                                   Less(classes, ExpandDims(by.labels, 1)));
  // What is no number counts as larger.
  const Output above =
      Count(LogicalOr(LogicalNot(LessEqual(logits_, of_label)), before));
  return Own(Cast(Equal(above, 0), DType::kFloat32));
}

Output CutLogits::TopKAccuracy(const Operand& labels, int64_t k) {
  LocationScope location(scope_.graph(), labels.location());
  NameScope names(scope_ / "top_k_accuracy");
  const Output of_label = LabelledBy(labels).logits;
  // What is no number counts as larger.
  const Output above =
      Count(LogicalNot(LessEqual(logits_, ExpandDims(of_label, 1))));
  return Own(Cast(LogicalAnd(Less(above, k), LogicalNot(IsNan(of_label))),
                  DType::kFloat32));
}

}  // namespace sluice
