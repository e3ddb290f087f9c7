#include "engine/semantics/fused_program.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <map>

#include "engine/semantics/scalar.h"

namespace sluice {
namespace {

using Functions = std::map<std::string, FusedFunction, std::less<>>;

template <typename... Ops>
void AddAll(scalar::OpList<Ops...>, const FusedFunction& function,
            Functions* functions) {
  (functions->emplace(Ops::kName, function), ...);
}

Functions MakeFunctions() {
  Functions functions;
  functions["LogicalNot"] = {1, 1, true};
  for (const char* name : {"LogicalAnd", "LogicalOr", "LogicalXor"}) {
    functions[name] = {2, 2, true};
  }
  functions["Select"] = {3, 1, false};
  AddAll(scalar::UnaryOps(), {1, 0, false}, &functions);
  AddAll(scalar::UnaryPredicates(), {1, 0, true}, &functions);
  AddAll(scalar::BinaryOps(), {2, 0, false}, &functions);
  AddAll(scalar::BinaryPredicates(), {2, 0, true}, &functions);
  return functions;
}

// Takes pieces off the front of a program's text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool Take(std::string_view token) {
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  std::string Word() {
    size_t n = 0;
    while (n < text_.size() && (std::isalnum(Byte(n)) != 0)) ++n;
    std::string word(text_.substr(0, n));
    text_.remove_prefix(n);
    return word;
  }
  template <typename T>
  bool Number(T* value) {
    const auto [end, error] =
        std::from_chars(text_.data(), text_.data() + text_.size(), *value);
    if (error != std::errc()) return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return true;
  }
  bool done() const { return text_.empty(); }

 private:
  unsigned char Byte(size_t i) const {
    return static_cast<unsigned char>(text_[i]);
  }
  std::string_view text_;
};

bool ScanStep(Scanner* in, FusedStep* step) {
  step->function = in->Word();
  if (in->Take("<")) {
    do {
      if (!in->Number(&step->params.emplace_back())) return false;
    } while (in->Take(","));
    if (!in->Take(">")) return false;
  }
  if (!in->Take("(")) return false;
  do {
    if (!in->Number(&step->operands.emplace_back())) return false;
  } while (in->Take(","));
  return in->Take(")");
}

Status CheckStep(const FusedProgram& before, const FusedStep& step) {
  auto fault = [&](std::string_view what) {
    return InvalidArgument(fmt::format("step {}, {}: {}", before.steps.size(),
                                       step.function, what));
  };
  const FusedFunction* function = FindFusedFunction(step.function);
  if (function == nullptr) return fault("there is no such function");
  if (static_cast<int>(step.operands.size()) != function->arity) {
    return fault(fmt::format("{} operands, wanted {}", step.operands.size(),
                             function->arity));
  }
  if (step.params.size() > 2) return fault("more than two parameters");
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const int value = step.operands[i];
    if (value < 0 || value >= before.values()) {
      return fault(fmt::format("value {} is not there yet", value));
    }
    const bool wants_bool = static_cast<int>(i) < function->bools;
    if (before.IsBool(value) != wants_bool) {
      return fault(
          fmt::format("value {} is {}bool", value, wants_bool ? "not " : ""));
    }
  }
  return {};
}

}  // namespace

const FusedFunction* FindFusedFunction(std::string_view name) {
  static const Functions functions = MakeFunctions();
  auto it = functions.find(name);
  return it == functions.end() ? nullptr : &it->second;
}

bool FusedProgram::IsBool(int value) const {
  return value >= inputs &&
         FindFusedFunction(steps[value - inputs].function)->gives_bool;
}

std::string FusedProgram::ToString() const {
  std::string text;
  for (const FusedStep& step : steps) {
    if (!text.empty()) text += "; ";
    text += step.function;
    for (size_t i = 0; i < step.params.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? "<" : ",", step.params[i]);
    }
    if (!step.params.empty()) text += ">";
    for (size_t i = 0; i < step.operands.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? "(" : ",", step.operands[i]);
    }
    text += ")";
  }
  return text;
}

Result<FusedProgram> ParseFusedProgram(std::string_view text, int inputs) {
  FusedProgram program = {inputs, {}};
  Scanner in(text);
  do {
    FusedStep step;
    if (!ScanStep(&in, &step)) {
      return InvalidArgument(fmt::format(
          "step {}: wanted a function and its operands, such as Add(0,1)",
          program.steps.size()));
    }
    SLUICE_RETURN_IF_ERROR(CheckStep(program, step));
    program.steps.push_back(std::move(step));
  } while (in.Take("; "));
  if (!in.done()) {
    return InvalidArgument(
        fmt::format("text behind step {}", program.steps.size() - 1));
  }
  return program;
}

}  // namespace sluice
