#include "kernels/cuda/fused/fused_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime/fingerprint.h"

namespace sluice::cuda {
namespace {

std::string_view ElementType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "double";
    case DType::kFloat16:
      return "Float16";
    case DType::kBFloat16:
      return "BrainFloat16";
    default:
      return "float";
  }
}

std::string_view FrameOf(FusedSumKind sum) {
  switch (sum) {
    case FusedSumKind::kLeading:
      return "SumLeading";
    case FusedSumKind::kTrailing:
      return "SumTrailing";
    case FusedSumKind::kNone:
      break;
  }
  return "ForEachPack";
}

std::string Literal(double value) {
  if (std::isnan(value)) return "scalar::NotANumber()";
  if (std::isinf(value)) {
    return value > 0 ? "scalar::Infinity()" : "-scalar::Infinity()";
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// "scalar::Mul()"; with parameters, through what ignores those it has not.
std::string Functor(const FusedStep& step) {
  if (step.params.empty()) return fmt::format("scalar::{}()", step.function);
  const double b = step.params.size() > 1 ? step.params[1] : 0;
  return fmt::format("scalar::MakeOp<scalar::{}>({}, {})", step.function,
                     Literal(step.params[0]), Literal(b));
}

// What the kernel is called by: all that its text depends on.
std::string Description(const FusedForm& form) {
  std::vector<int> reads;
  for (FusedRead read : form.reads) reads.push_back(static_cast<int>(read));
  return fmt::format(
      "{} {} reads {} rank {} stores {} {} {}", NameOf(form.dtype),
      form.program.ToString(), fmt::join(reads, ","), form.rank,
      fmt::join(form.stored, ","), FrameOf(form.sum), form.summed);
}

class Writer {
 public:
  explicit Writer(const FusedForm& form) : form_(form) { FindUsed(); }

  FusedSource Run() {
    const std::string name =
        fmt::format("fused_{:016x}", Fingerprint(Description(form_)));
    Line(0, "// {} of {}: {}",
         form_.sum == FusedSumKind::kNone ? "Fused" : "FusedSum",
         NameOf(form_.dtype), form_.program.ToString());
    Line(0, "#include \"kernels/cuda/fused/fused_device.h\"\n");
    Line(0, "namespace sluice::cuda::program_{} {{\n", name);
    Line(0, "struct Program {{");
    Line(1, "using T = {};", ElementType(form_.dtype));
    Line(1, "using C = ComputeOf<T>;");
    Line(1, "static constexpr int kN = kPack<T>;");
    Line(1, "const FusedArguments& a;");
    for (int v = 0; v < form_.program.inputs; ++v) {
      if (!used_[v] || form_.reads[v] != FusedRead::kScalar) continue;
      Line(1, "const C v{0} = LoadScalar<T>(a, {0});", v);
    }
    WriteFetch();
    WriteCall();
    Line(0, "}};\n");
    Line(0, "extern \"C\" __global__ void __launch_bounds__(kFusedThreads)");
    Line(0, "    {}(const __grid_constant__ FusedArguments a) {{", name);
    Line(1, "{}(Program{{a}});", FrameOf(form_.sum));
    Line(0, "}}\n");
    Line(0, "}}  // namespace sluice::cuda::program_{}", name);
    return {name, std::move(text_)};
  }

 private:
  template <typename... Args>
  void Line(int indent, fmt::format_string<Args...> format, Args&&... args) {
    text_.append(2 * static_cast<size_t>(indent), ' ');
    fmt::format_to(std::back_inserter(text_), format,
                   std::forward<Args>(args)...);
    text_ += '\n';
  }

  // What no output depends on is left out.
  void FindUsed() {
    const FusedProgram& program = form_.program;
    used_.resize(program.values());
    for (int v : form_.stored) used_[v] = true;
    if (form_.summed >= 0) used_[form_.summed] = true;
    for (int v = program.values() - 1; v >= program.inputs; --v) {
      if (!used_[v]) continue;
      for (int operand : program.steps[v - program.inputs].operands) {
        used_[operand] = true;
      }
    }
  }

  // What is loaded of each pack, and the function that does.
  void WriteFetch() {
    const bool any = ReadsElements();
    text_ += '\n';
    Line(1, "struct Fetched {{");
    for (int v = 0; v < form_.program.inputs; ++v) {
      if (IsFetched(v)) Line(2, "Pack<T, kN> x{};", v);
    }
    Line(1, "}};");
    Line(1, "__device__ Fetched Fetch(int64_t{}, int64_t{}, bool{}) const {{",
         any ? " i" : "", any ? " count" : "", any ? " whole" : "");
    Line(2, "Fetched x;");
    WriteLoads();
    Line(2, "return x;");
    Line(1, "}}");
  }

  bool IsFetched(int v) const {
    return used_[v] && form_.reads[v] != FusedRead::kScalar;
  }

  void WriteCall() {
    const bool sums = form_.summed >= 0;
    // A sum of scalars alone needs no place.
    const bool stores = !form_.stored.empty();
    text_ += '\n';
    Line(1,
         "__device__ {} operator()(const Fetched&{}, int64_t{}, int64_t{}, "
         "bool{}) const {{",
         sums ? "Pack<C, kN>" : "void", ReadsElements() ? " x" : "",
         stores ? " i" : "", stores ? " count" : "", stores ? " whole" : "");
    for (size_t k = 0; k < form_.stored.size(); ++k) {
      Line(2, "Pack<T, kN> y{};", k);
    }
    if (sums) Line(2, "Pack<C, kN> sum;");
    Line(2, "for (int k = 0; k < kN; ++k) {{");
    WriteSteps();
    for (size_t k = 0; k < form_.stored.size(); ++k) {
      Line(3, "y{}.at[k] = T(v{});", k, form_.stored[k]);
    }
    if (sums) Line(3, "sum.at[k] = v{};", form_.summed);
    Line(2, "}}");
    for (size_t k = 0; k < form_.stored.size(); ++k) {
      Line(2, "StoreElements(a, {0}, y{0}, i, count, whole);", k);
    }
    if (sums) Line(2, "return sum;");
    Line(1, "}}");
  }

  bool ReadsElements() const {
    for (int v = 0; v < form_.program.inputs; ++v) {
      if (IsFetched(v)) return true;
    }
    return false;
  }

  void WriteLoads() {
    bool indexed = false;
    for (int v = 0; v < form_.program.inputs; ++v) {
      const FusedRead read = form_.reads[v];
      if (!IsFetched(v)) continue;
      if (read == FusedRead::kElements) {
        Line(2, "x.x{0} = LoadElements<T>(a, {0}, i, count, whole);", v);
        continue;
      }
      if (!indexed) {
        Line(2, "const Indices index = IndicesOf(a, {}, i);", form_.rank);
        indexed = true;
      }
      Line(2,
           "x.x{0} = LoadRepeated<T, {1}>(a, {0}, {2}, index, i, count, "
           "whole);",
           v, read == FusedRead::kAlong, form_.rank);
    }
  }

  void WriteSteps() {
    const FusedProgram& program = form_.program;
    for (int v = 0; v < program.values(); ++v) {
      if (!used_[v]) continue;
      if (v >= program.inputs) {
        const FusedStep& step = program.steps[v - program.inputs];
        Line(3, "const {} v{} = {}(v{});", program.IsBool(v) ? "bool" : "C", v,
             Functor(step), fmt::join(step.operands, ", v"));
      } else if (form_.reads[v] != FusedRead::kScalar) {
        Line(3, "const C v{0} = static_cast<C>(x.x{0}.at[k]);", v);
      }
    }
  }

  const FusedForm& form_;
  std::vector<bool> used_;  // of each value
  std::string text_;
};

}  // namespace

FusedSource FusedSourceOf(const FusedForm& form) {
  return Writer(form).Run();
}

}  // namespace sluice::cuda
