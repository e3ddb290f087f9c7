// The other ops and functions that records name, for passes that put one in
// place of another.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "engine/semantics/fused_program.h"
#include "graph/op.h"

namespace sluice::testing {
namespace {

TEST_CASE("the ops that a record names are ops") {
  int named = 0;
  for (const OpDef* op : OpTable::Global().All()) {
    for (const char* other :
         {op->start, op->wait, op->list_op, op->gradient_op, op->with_gradient,
          op->with_relu, op->with_add_relu, op->ohwi_op, op->with_sums,
          op->by_sums}) {
      if (other == nullptr) continue;
      ++named;
      CHECK_MESSAGE(OpTable::Global().Find(other) != nullptr,
                    std::string(op->name), " names ", std::string(other));
    }
  }
  CHECK(named >= 6 + 8 + 7 + 2 * 2 + 2 * 2 + 3 + 1 + 3);
}

TEST_CASE("what takes a ReLU along leaves a mask, and nothing else does") {
  std::set<std::string> named;
  for (const OpDef* op : OpTable::Global().All()) {
    CHECK_MESSAGE((op->with_relu != nullptr) == (op->with_add_relu != nullptr),
                  std::string(op->name));
    if (op->with_relu == nullptr) continue;
    named.insert(op->with_relu);
    named.insert(op->with_add_relu);
  }
  for (const OpDef* op : OpTable::Global().All()) {
    if (op->relu_mask && op->by_sums != nullptr) named.insert(op->by_sums);
  }
  for (const OpDef* op : OpTable::Global().All()) {
    CAPTURE(std::string(op->name));
    CHECK(op->relu_mask == named.contains(op->name));
    if (!op->relu_mask) continue;
    CHECK(std::string(op->outputs[op->outputs.size() - 1].type) == "uint8");
  }
}

// The last two operands, or results, are sums in the type that arithmetic is
// done in; else the ops are alike.
TEST_CASE("ops with sums are the ops without, and two sums") {
  const auto same = [](const ArgDef& a, const ArgDef& b) {
    return std::string(a.name) == b.name && std::string(a.type) == b.type;
  };
  const auto check = [&](const auto& without, const auto& with) {
    REQUIRE(with.size() == without.size() + 2);
    for (int i = 0; i < with.size(); ++i) {
      if (i < without.size()) {
        CHECK(same(with[i], without[i]));
      } else {
        CHECK(std::string(with[i].type) == kComputeOfT);
      }
    }
  };
  for (const OpDef* op : OpTable::Global().All()) {
    CAPTURE(std::string(op->name));
    for (const char* name : {op->with_sums, op->by_sums}) {
      if (name == nullptr) continue;
      const OpDef& sums = OpTable::Global().Get(name);
      CHECK(sums.attrs.size() == op->attrs.size());
      CHECK(sums.relu_mask == op->relu_mask);
      if (name == op->with_sums) {
        check(op->outputs, sums.outputs);
        CHECK(sums.inputs.size() == op->inputs.size());
      } else {
        check(op->inputs, sums.inputs);
        CHECK(sums.outputs.size() == op->outputs.size());
      }
    }
  }
}

TEST_CASE("a scalar function that a record names is one") {
  for (const OpDef* op : OpTable::Global().All()) {
    for (const char* function : {op->scalar, op->scalar_approximate}) {
      if (function == nullptr) continue;
      CAPTURE(std::string(op->name));
      REQUIRE(FindFusedFunction(function) != nullptr);
      const int arity = FindFusedFunction(function)->arity;
      CHECK(arity == (op->inputs[0].variadic ? 2 : op->inputs.size()));
    }
  }
}

}  // namespace
}  // namespace sluice::testing
