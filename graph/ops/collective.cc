#include "graph/ops/collective.h"

#include <fmt/format.h>

#include <utility>

#include "graph/ops/elementwise.h"
#include "graph/ops/tables.h"

namespace sluice {
namespace {

Output AddCollective(const char* op, const Operand& x, Attributes attrs,
                     const std::string& name) {
  return x.graph().Add({op, {x}, std::move(attrs), name}).output(0);
}

Reduction HowOf(const Node& node) {
  return node.attrs().Bool("mean") ? Reduction::kMean : Reduction::kSum;
}

// The number of workers that a node is for. The builders leave it open, since
// one graph is for any number, and the same graph for each worker: it is filled
// in with what a session has (passes::CountWorkers), so that first dimensions
// are concrete when a plan is made.
constexpr const char* kWorkers = "workers";
constexpr int64_t kAsMany = 0;
// Which workers: those of the part of that name, or all.
constexpr const char* kGroup = "group";
// Which of them a node is run by: filled in in the same way.
constexpr const char* kRank = "rank";
constexpr int64_t kOwn = -1;

// Which workers, and how many, as of a node.
Attributes WorkersOf(const Node& node) {
  return {{kGroup, node.attrs().String(kGroup)},
          {kWorkers, node.attrs().Int(kWorkers)}};
}

// A gradient: of the workers of a node.
Output Transposed(const Node& node, const char* op, const Output& dy,
                  const std::string& name) {
  Attributes attrs = WorkersOf(node);
  if (node.attrs().Has("root")) attrs.Set("root", node.attrs().Int("root"));
  return AddCollective(op, dy, std::move(attrs), name);
}

// kUnknown where it is left open.
Result<int64_t> WorkersOf(const InferContext& c) {
  const int64_t workers = c.attrs().Int(kWorkers);
  if (workers < 0) return InvalidArgument(fmt::format("{} workers", workers));
  return workers == kAsMany ? kUnknown : workers;
}

// The first dimension, which is one part a worker.
Result<int64_t> PartOf(const Shape& x, int64_t workers) {
  if (x[0] == kUnknown || workers == kUnknown) return kUnknown;
  if (x[0] % workers == 0) return x[0] / workers;
  return InvalidArgument(
      fmt::format("the first dimension of {} is no multiple of {} workers",
                  x.ToString(), workers));
}

Status CheckRows(const Shape& x) {
  if (x.rank() > 0) return {};
  return InvalidArgument("a scalar has no first dimension");
}

Status AllGatherShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, WorkersOf(c));
  Shape y = c.input(0);
  SLUICE_RETURN_IF_ERROR(CheckRows(y));
  const int64_t dims[] = {y[0], workers};
  if (y[0] == kUnknown || workers == kUnknown) {
    y.set(0, kUnknown);
  } else {
    SLUICE_ASSIGN_OR_RETURN(const int64_t all, CheckedElements(dims));
    y.set(0, all);
  }
  c.SetOutput(0, y);
  return {};
}

Status CheckMean(const InferContext& c) {
  if (!c.attrs().Bool("mean") || IsFloating(c.type(0).dtype)) return {};
  return InvalidArgument(
      fmt::format("{} has no mean", NameOf(c.type(0).dtype)));
}

Status ReducedShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(CheckMean(c));
  return SameShape(c);
}

Status ScatterShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, WorkersOf(c));
  Shape y = c.input(0);
  SLUICE_RETURN_IF_ERROR(CheckRows(y));
  SLUICE_RETURN_IF_ERROR(CheckMean(c));
  SLUICE_ASSIGN_OR_RETURN(const int64_t part, PartOf(y, workers));
  y.set(0, part);
  c.SetOutput(0, y);
  return {};
}

Status TradeShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, WorkersOf(c));
  SLUICE_RETURN_IF_ERROR(CheckRows(c.input(0)));
  SLUICE_RETURN_IF_ERROR(PartOf(c.input(0), workers).status());
  return SameShape(c);
}

Status RootedShape(InferContext& c) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t workers, WorkersOf(c));
  const int64_t root = c.attrs().Int("root");
  if (root < 0 || (workers != kUnknown && root >= workers)) {
    return InvalidArgument(
        workers == kUnknown
            ? fmt::format("there is no rank {}", root)
            : fmt::format("there is no rank {} of {}", root, workers));
  }
  return SameShape(c);
}

Status CountShape(InferContext& c) {
  SLUICE_RETURN_IF_ERROR(WorkersOf(c).status());
  return ScalarShape(c);
}

Status RankShape(InferContext& c) {
  const int64_t rank = c.attrs().Int(kRank);
  if (rank < kOwn) return InvalidArgument(fmt::format("rank {}", rank));
  return ScalarShape(c);
}

constexpr TypeVar kAny = {"T", kAnyType};
constexpr TypeVar kSummed = {"T", kFloating | kIndex};
constexpr AttrDef kGroupAttr = {kGroup, ""};
constexpr AttrDef kWorkersAttr = {kWorkers, kAsMany};
constexpr AttrDef kMeanAttr = {"mean", false};
constexpr AttrDef kRootAttr = {"root", 0};
// How many of them its step has, of its group (passes::StartCollectives).
constexpr AttrDef kInStepAttr = {"in_step", 0};
constexpr AttrSetting kAlone = {kWorkers, 1};  // for probes

// What a step makes of them (passes::StartCollectives): the start of each has
// its attributes, and how many there are.
constexpr OpDef StartOp(const char* name, const char* doc, TypeVar type,
                        FixedList<AttrDef, 10> attrs, ShapeFn shape) {
  return {.name = name,
          .doc = doc,
          .made_by = MadeBy::kEngine,
          .inputs = {{"x"}},
          .types = {type},
          .attrs = attrs,
          .shape = shape,
          .gradient = NotDifferentiable,
          .stateful = true,
          .collective = true,
          .wait = "CollectiveWait",
          .inplace = {0}};
}

constexpr OpDef GatherStartOp() {
  OpDef op = StartOp("AllGatherStart",
                     "Begins the AllGather of x; y is where it will be.", kAny,
                     {kGroupAttr, kWorkersAttr, kInStepAttr}, AllGatherShape);
  op.inplace = {};
  return op;
}

// In place of x, of which the other workers' rows are lost.
constexpr OpDef ScatterStartOp() {
  OpDef op =
      StartOp("ReduceScatterStart",
              "Begins the ReduceScatter of x; y is where it is done.", kSummed,
              {kMeanAttr, kGroupAttr, kWorkersAttr, kInStepAttr}, ReducedShape);
  op.wait = "ReduceScatterWait";
  return op;
}

constexpr OpDef kCollectiveOps[] = {
    {.name = "AllReduce",
     .doc = "The sum of x over the workers of a job; its mean with `mean`.",
     .inputs = {{"x"}},
     .types = {kSummed},
     .attrs = {kMeanAttr, kGroupAttr},
     .shape = ReducedShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {AllReduce(dy[0], HowOf(node), "all_reduce",
                         node.attrs().String(kGroup))};
     },
     .stateful = true,
     .collective = true,
     .start = "AllReduceStart",
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {2, 3}}}},
                {.inputs = {{.shape = {0, 3}}}}}},
    {.name = "AllGather",
     .doc = "The x of all `workers` of a job, one behind another by rank, along"
            " the first dimension; 0: as many as the session has.",
     .inputs = {{"x"}},
     .types = {kAny},
     .attrs = {kGroupAttr, kWorkersAttr},
     .shape = AllGatherShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Transposed(node, "ReduceScatter", dy[0], "reduce_scatter")};
     },
     .stateful = true,
     .collective = true,
     .start = "AllGatherStart",
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {kAlone}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {kAlone}}}},
    {.name = "ReduceScatter",
     .doc = "The sum of x over the `workers` of a job, or its mean with `mean`:"
            " of the first dimension cut into as many parts each worker's own.",
     .inputs = {{"x"}},
     .types = {kSummed},
     .attrs = {kMeanAttr, kGroupAttr, kWorkersAttr},
     .shape = ScatterShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       const Output dx = Transposed(node, "AllGather", dy[0], "all_gather");
       if (HowOf(node) == Reduction::kSum) return {dx};
       Node& workers = dx.graph().Add({"NumWorkers", {}, WorkersOf(node)});
       return {dx / Cast(workers.output(0), dx.dtype())};
     },
     .stateful = true,
     .collective = true,
     .start = "ReduceScatterStart",
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {kAlone}},
                {.inputs = {{.shape = {4}}}, .attrs = {kAlone}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {kAlone}}}},
    {.name = "AllToAll",
     .doc = "Of the first dimension cut into one part for each of the `workers`"
            " of a job: the parts of all for this one, by rank.",
     .inputs = {{"x"}},
     .types = {kAny},
     .attrs = {kGroupAttr, kWorkersAttr},
     .shape = TradeShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Transposed(node, "AllToAll", dy[0], "all_to_all")};
     },
     .stateful = true,
     .collective = true,
     .start = "AllToAllStart",
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {kAlone}},
                {.inputs = {{.shape = {0, 3}}}, .attrs = {kAlone}}}},
    {.name = "Broadcast",
     .doc = "The x of the worker of rank `root` of a job's `workers`.",
     .inputs = {{"x"}},
     .types = {kAny},
     .attrs = {kRootAttr, kGroupAttr, kWorkersAttr},
     .shape = RootedShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Transposed(node, "Reduce", dy[0], "reduce")};
     },
     .stateful = true,
     .collective = true,
     .start = "BroadcastStart",
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {kAlone}},
                {.inputs = {{.shape = {}}}, .attrs = {kAlone}}}},
    {.name = "Reduce",
     .doc = "The sum of x over a job's `workers` for that of rank `root`, zeros"
            " for the others.",
     .inputs = {{"x"}},
     .types = {kSummed},
     .attrs = {kRootAttr, kGroupAttr, kWorkersAttr},
     .shape = RootedShape,
     .gradient = [](const Node& node, const Outputs& dy) -> Outputs {
       return {Transposed(node, "Broadcast", dy[0], "broadcast")};
     },
     .stateful = true,
     .collective = true,
     .start = "ReduceStart",
     .inplace = {0},
     .probes = {{.inputs = {{.shape = {2, 3}}}, .attrs = {kAlone}},
                {.inputs = {{.shape = {}}}, .attrs = {kAlone}}}},
    StartOp("AllReduceStart",
            "Begins the AllReduce of x; y is where it will be.", kSummed,
            {kMeanAttr, kGroupAttr, kInStepAttr}, ReducedShape),
    GatherStartOp(),
    ScatterStartOp(),
    StartOp("AllToAllStart", "Begins the AllToAll of x; y is where it will be.",
            kAny, {kGroupAttr, kWorkersAttr, kInStepAttr}, TradeShape),
    StartOp("BroadcastStart",
            "Begins the Broadcast of x; y is where it will be.", kAny,
            {kRootAttr, kGroupAttr, kWorkersAttr, kInStepAttr}, RootedShape),
    StartOp("ReduceStart", "Begins the Reduce of x; y is where it will be.",
            kSummed, {kRootAttr, kGroupAttr, kWorkersAttr, kInStepAttr},
            RootedShape),
    {.name = "CollectiveWait",
     .doc = "Waits until x, which was begun, is there; y is x.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .types = {kAny},
     .attrs = {kGroupAttr},
     .gradient = NotDifferentiable,
     .stateful = true,
     .collective = true,
     .view = true,
     .runs = true},
    {.name = "ReduceScatterWait",
     .doc = "Waits until x has been reduced; y is this worker's rows of it.",
     .made_by = MadeBy::kEngine,
     .inputs = {{"x"}},
     .types = {kSummed},
     .attrs = {kMeanAttr, kGroupAttr, kWorkersAttr},
     .shape = ScatterShape,
     .gradient = NotDifferentiable,
     .stateful = true,
     .collective = true},
    {.name = "NumWorkers",
     .doc = "How many workers a job, or its part `group`, has: `workers`.",
     .outputs = {{"y", "int64"}},
     .types = {},
     .attrs = {kGroupAttr, kWorkersAttr},
     .shape = CountShape,
     .gradient = NotDifferentiable,
     .asks_seat = true,
     .probes = {{.attrs = {kAlone}}, {.attrs = {{kWorkers, 3}}}}},
    {.name = "WorkerRank",
     .doc = "Which of the workers of a job, or of its part `group`, runs this:"
            " `rank`; -1: the one that the session is.",
     .outputs = {{"y", "int64"}},
     .types = {},
     .attrs = {kGroupAttr, {kRank, kOwn}},
     .shape = RankShape,
     .gradient = NotDifferentiable,
     .asks_seat = true,
     .probes = {{.attrs = {{kRank, 0}}}, {.attrs = {{kRank, 2}}}}},
};

}  // namespace

std::span<const OpDef> CollectiveOps() {
  return kCollectiveOps;
}

Output AllReduce(Operand x, Reduction how, const std::string& name,
                 const std::string& group) {
  return AddCollective("AllReduce", x,
                       {{"mean", how == Reduction::kMean}, {kGroup, group}},
                       name);
}

Output AllGather(Operand x, const std::string& name, const std::string& group,
                 int64_t workers) {
  return AddCollective("AllGather", x, {{kGroup, group}, {kWorkers, workers}},
                       name);
}

Output ReduceScatter(Operand x, Reduction how, const std::string& name,
                     const std::string& group) {
  return AddCollective("ReduceScatter", x,
                       {{"mean", how == Reduction::kMean}, {kGroup, group}},
                       name);
}

Output AllToAll(Operand x, const std::string& name, const std::string& group) {
  return AddCollective("AllToAll", x, {{kGroup, group}}, name);
}

Output Broadcast(Operand x, int root, const std::string& name,
                 const std::string& group) {
  return AddCollective("Broadcast", x, {{"root", root}, {kGroup, group}}, name);
}

Output Reduce(Operand x, int root, const std::string& name,
              const std::string& group) {
  return AddCollective("Reduce", x, {{"root", root}, {kGroup, group}}, name);
}

Output NumWorkers(Graph& graph, const std::string& name,
                  const std::string& group) {
  return graph.Add({"NumWorkers", {}, {{kGroup, group}}, name}).output(0);
}

Output WorkerRank(Graph& graph, const std::string& name,
                  const std::string& group) {
  return graph.Add({"WorkerRank", {}, {{kGroup, group}}, name}).output(0);
}

}  // namespace sluice
