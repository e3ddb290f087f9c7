#include "kernels/cuda/fused/fused_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/ceil_div.h"
#include "engine/semantics/sum_cut.h"

namespace sluice::cuda {
namespace {

// Blocks that fill any GPU of today several times over.
constexpr int64_t kMostBlocks = 4096;
static_assert(kFusedThreads == kSumThreads);
static_assert(kMostFusedInputs >= kMostProgramInputs &&
              kMostFusedOutputs >= kMostProgramOutputs);

// Merges dimensions over which all inputs that repeat do so alike. Their
// strides are 0 where they repeat.
void PlaceInputs(const KernelSpec& spec, FusedWork* work) {
  FusedForm& form = work->form;
  FusedArguments& a = work->arguments;
  const Shape& shape = spec.attrs.ShapeOf("shape");
  const int count = static_cast<int>(spec.inputs.size());
  std::vector<std::array<int64_t, Shape::kMaxRank>> strides;
  std::vector<int> repeated;
  form.reads.resize(count, FusedRead::kElements);
  for (int i = 0; i < count; ++i) {
    const int64_t elements = spec.inputs[i].shape.elements();
    strides.push_back(Strides(spec.inputs[i].shape));
    if (elements == 1) {
      form.reads[i] = FusedRead::kScalar;
    } else if (elements != shape.elements()) {
      repeated.push_back(i);
    }
  }
  for (int d = 0; d < shape.rank() && !repeated.empty(); ++d) {
    if (shape[d] == 1) continue;
    int64_t step[kMostFusedInputs] = {};
    bool merges = form.rank > 0;
    for (int i : repeated) {
      const Shape& x = spec.inputs[i].shape;
      const int own = d - (shape.rank() - x.rank());
      step[i] = own < 0 || x[own] == 1 ? 0 : strides[i][own];
      merges = merges && a.strides[i][form.rank - 1] == step[i] * shape[d];
    }
    if (!merges) a.dims[form.rank++] = 1;
    a.dims[form.rank - 1] *= shape[d];
    for (int i : repeated) a.strides[i][form.rank - 1] = step[i];
  }
  for (int i : repeated) {
    form.reads[i] = a.strides[i][form.rank - 1] == 0 ? FusedRead::kRepeated
                                                     : FusedRead::kAlong;
  }
}

void CutSum(const KernelSpec& spec, int pack, bool states, FusedWork* work) {
  FusedSumShape& sum = work->arguments.sum;
  const auto size =
      static_cast<int64_t>(SizeOf(ComputeDType(work->form.dtype)));
  work->results = spec.outputs.back().shape.elements();
  const int64_t other = work->arguments.elements / work->results;
  sum.scale = spec.attrs.Float("sum_scale");
  int64_t tasks = 0;
  SumCut cut;
  if (work->form.sum == FusedSumKind::kTrailing) {
    sum.rows = work->results;
    sum.columns = other;
    cut = CutTrailingSum(sum.rows, sum.columns, pack);
    tasks = CeilDiv(sum.rows * cut.segments * cut.lanes, kFusedThreads);
    work->shared_bytes = static_cast<size_t>(32 * size);
  } else {
    sum.rows = other;
    sum.columns = work->results;
    cut = CutLeadingSum(sum.rows, sum.columns, pack);
    tasks = cut.groups * cut.segments;
    work->shared_bytes = static_cast<size_t>(kFusedThreads * pack * size);
  }
  sum.lanes = cut.lanes;
  sum.segment = cut.segment;
  sum.segments = cut.segments;
  sum.states = states || sum.segments > 1;
  if (sum.states) {
    work->workspace_bytes =
        static_cast<size_t>(work->results * sum.segments * size);
  }
  work->blocks = std::min(tasks, kMostBlocks);
}

// Do packs lie within rows of the innermost dimension, and on 16 bytes?
void PlacePacks(int pack, FusedWork* work) {
  const FusedForm& form = work->form;
  FusedArguments& a = work->arguments;
  const bool summed = form.sum != FusedSumKind::kNone;
  // A sum's packs begin anew with each of its rows.
  const bool at_packs = !summed || a.sum.columns % pack == 0;
  work->whole = at_packs;
  a.rows = true;
  if (form.rank == 0) return;
  const int64_t row = a.dims[form.rank - 1];
  a.rows = (row % pack == 0 && at_packs) || (summed && row == a.sum.columns);
  for (size_t i = 0; i < form.reads.size(); ++i) {
    if (form.reads[i] != FusedRead::kAlong) continue;
    for (int d = 0; d + 1 < form.rank; ++d) {
      work->whole &= a.strides[i][d] % pack == 0;
    }
  }
}

}  // namespace

Result<FusedWork> FusedWorkOf(const KernelSpec& spec, int pack, bool states) {
  FusedWork work = {};
  FusedForm& form = work.form;
  SLUICE_ASSIGN_OR_RETURN(
      form.program, ParseFusedProgram(spec.attrs.String("program"),
                                      static_cast<int>(spec.inputs.size())));
  const std::vector<int64_t>& outputs = spec.attrs.Ints("outputs");
  if (spec.inputs.size() > kMostFusedInputs ||
      outputs.size() > kMostFusedOutputs) {
    return Unimplemented(fmt::format(
        "fused node '{}' has {} inputs and {} outputs; kernels for GPUs take "
        "up to {} and {}",
        spec.node, spec.inputs.size(), outputs.size(), kMostFusedInputs,
        kMostFusedOutputs));
  }
  form.dtype = spec.inputs[0].dtype;
  for (int64_t value : outputs) form.stored.push_back(static_cast<int>(value));
  work.arguments.elements = spec.attrs.ShapeOf("shape").elements();
  PlaceInputs(spec, &work);
  if (spec.attrs.Has("sum")) {
    form.summed = form.stored.back();
    form.stored.pop_back();
    form.sum = spec.attrs.String("sum") == "leading" ? FusedSumKind::kLeading
                                                     : FusedSumKind::kTrailing;
    CutSum(spec, pack, states, &work);
  } else {
    work.blocks =
        std::min(CeilDiv(CeilDiv(work.arguments.elements, pack), kFusedThreads),
                 kMostBlocks);
  }
  PlacePacks(pack, &work);
  return work;
}

}  // namespace sluice::cuda
