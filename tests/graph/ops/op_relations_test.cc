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
         {op->wait, op->list_op, op->gradient_op, op->with_gradient,
          op->with_relu, op->with_add_relu}) {
      if (other == nullptr) continue;
      ++named;
      CHECK_MESSAGE(OpTable::Global().Find(other) != nullptr,
                    std::string(op->name), " names ", std::string(other));
    }
  }
  CHECK(named >= 2 + 7 + 2 * 2 + 2 * 2);
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
    CAPTURE(std::string(op->name));
    CHECK(op->relu_mask == named.contains(op->name));
    if (!op->relu_mask) continue;
    CHECK(std::string(op->outputs[op->outputs.size() - 1].type) == "uint8");
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
