// Mixed precision and what reads some rows, or some elements, of a large
// variable: these are rounded to half, and never the whole. And such as are cut
// over devices: what travels is half.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/precision.h"
#include "graph/autograd.h"
#include "graph/builder.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/passes/passes.h"
#include "graph/row_pieces.h"
#include "graph/session/session.h"
#include "models/nn/layers.h"
#include "models/optim/optimizers.h"
#include "tests/support/described.h"

namespace sluice {
namespace {

constexpr int64_t kRows = 20'000, kWidth = 16, kRead = 6;
constexpr size_t kTableBytes = kRows * kWidth * sizeof(float);

// Values of many bits, which half has not.
Tensor Values(const Shape& shape, uint32_t state) {
  Tensor tensor(DType::kFloat32, shape);
  for (float& v : tensor.values<float>()) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8) * 0x1p-23F - 1;
  }
  return tensor;
}

// What takes kRead rows of kWidth from a table, and which values it takes.
struct Reading {
  const char* name;
  Shape table;
  std::function<Output(const Output& table, const Output& rows)> read;
  bool fed = true;  // which ones
};

std::vector<Reading> Readings() {
  const auto flat = [](const Output& x) {
    return Reshape(x, Shape{kRead, kWidth});
  };
  return {
      {"rows",
       {kRows, kWidth},
       [](const Output& table, const Output& rows) {
         return Gather(table, rows);
       }},
      {"rows of rows",
       {kRows, 2, kWidth / 2},
       [flat](const Output& table, const Output& rows) {
         return flat(Gather(table, Reshape(rows, Shape{2, kRead / 2})));
       }},
      {"columns",
       {kWidth, kRows},
       [](const Output& table, const Output& rows) {
         return Transpose(Gather(table, rows, {.axis = 1}), {1, 0});
       }},
      {"a slice",
       {kRows, kWidth},
       [](const Output& table, const Output&) {
         return Slice(table, {100, 0}, {kRead, kWidth});
       },
       false},
      {"every thousandth",
       {kRows, kWidth},
       [](const Output& table, const Output&) {
         return StridedSlice(
             table, {.begin = {0}, .end = {kRead * 1000}, .strides = {1000}});
       },
       false},
      {"a slice of what looks like it",
       {kRows, kWidth},
       [](const Output& table, const Output&) {
         return Slice(Reshape(table, Shape{kRows / 2, 2 * kWidth}),
                      {50, kWidth}, {kRead, kWidth});
       },
       false},
  };
}

// Behind what is read, with products on the way and not.
Output Behind(const Output& rows, const Output& weights) {
  return Sum(Tanh(MatMul(Relu(rows + 0.25F) * 0.5F, weights)));
}

struct Step {
  Graph graph;
  Output table, rows, weights, loss;
};

std::unique_ptr<Step> StepOf(const Reading& reading) {
  auto step = std::make_unique<Step>();
  Graph& graph = step->graph;
  step->rows = graph.Placeholder("rows", DType::kInt64, {kRead});
  step->table = graph.Variable("table", CopyOf(Values(reading.table, 3)));
  step->weights = graph.Variable("weights", CopyOf(Values({kWidth, 4}, 5)));
  step->loss = Behind(reading.read(step->table, step->rows), step->weights);
  return step;
}

const Tensor& RowsRead() {
  static const Tensor rows = Tensor::Vector<int64_t>(
      std::vector<int64_t>{7, kRows - 1, 0, 12'345, 7, 400});
  return rows;
}

SessionOptions In(Precision precision) {
  SessionOptions options;
  options.precision = precision;
  options.fuse = false;  // a fused node rounds once where its parts would twice
  return options;
}

TEST_CASE("rows of a large variable are rounded to half, not the variable") {
  for (const Reading& reading : Readings()) {
    CAPTURE(std::string(reading.name));
    const auto step = StepOf(reading);
    // The rows as they are in the table.
    Tensor taken;
    {
      Graph plain;
      const Output table =
          plain.Variable("table", CopyOf(Values(reading.table, 3)));
      const Output rows = plain.Placeholder("rows", DType::kInt64, {kRead});
      Session session(plain);
      session.Initialize();
      taken = session.Run({{rows, RowsRead()}}, reading.read(table, rows));
    }
    for (const Precision precision :
         {Precision::kBFloat16, Precision::kFloat16}) {
      CAPTURE(NameOf(precision));
      // What would be computed with these alone.
      Graph alone;
      const Output rows =
          alone.Placeholder("rows", DType::kFloat32, {kRead, kWidth});
      const Output weights =
          alone.Variable("weights", CopyOf(Values({kWidth, 4}, 5)));
      Session expected(alone, In(precision));
      expected.Initialize();
      const Tensor loss = expected.Run({{rows, taken}}, Behind(rows, weights));
      for (const bool freeze : {false, true}) {
        CAPTURE(freeze);
        Session session(step->graph, In(precision));
        session.Initialize();
        if (freeze) session.Freeze();
        const bool same =
            session.Run({{step->rows, RowsRead()}}, step->loss).BitEqual(loss);
        // Where nothing is fed all of it is folded, in float32.
        CHECK((same || (freeze && !reading.fed)));
        const StepInfo info =
            session.Prepare({{step->rows, {kRead}}}, {step->loss}).info();
        CHECK(info.arena_bytes < kTableBytes / 20);
        // Folded at once, of a variable that is a constant.
        CHECK(info.constant_bytes < kTableBytes * 5 / 4);
      }
    }
  }
}

TEST_CASE("no Cast that the pass makes is of more than what is read") {
  for (const Reading& reading : Readings()) {
    CAPTURE(std::string(reading.name));
    const auto step = StepOf(reading);
    StepRequest request;
    request.feeds = {{step->rows, {kRead}}};
    request.fetches = {step->loss};
    const auto extracted = ExtractStep(step->graph, request).ValueOrThrow();
    passes::Prune(*extracted);
    ThrowIfError(passes::Refine(*extracted, FoldNode));
    ThrowIfError(passes::Place(*extracted, testing::Described({"/cpu:0"})));
    ThrowIfError(passes::MixPrecision(*extracted, DType::kBFloat16));
    ThrowIfError(passes::Verify(*extracted));
    int casts = 0;
    for (const auto& node : extracted->nodes()) {
      if (!node->Is("Cast")) continue;
      ++casts;
      CHECK(node->output(0).shape().elements() <= kRead * kWidth);
    }
    CHECK(casts >= 2);  // of what is read, and of the weights
  }
}

// Trained by rows, on one device, on two, and cut over two.
TEST_CASE("gradients of rows in half are those of the rows alone") {
  for (const Precision precision :
       {Precision::kBFloat16, Precision::kFloat16}) {
    for (int placing = 0; placing < 3; ++placing) {
      CAPTURE(NameOf(precision));
      CAPTURE(placing);
      const auto step = StepOf(Readings()[0]);
      // The rows' gradients by a step that has nothing else.
      Graph alone;
      const Output rows =
          alone.Placeholder("rows", DType::kFloat32, {kRead, kWidth});
      const Output weights =
          alone.Variable("weights", CopyOf(Values({kWidth, 4}, 5)));
      const Output gradient = Gradients({Behind(rows, weights)}, {rows})[0];
      Session expected(alone, In(precision));
      expected.Initialize();
      Tensor table = Values({kRows, kWidth}, 3);
      Tensor taken(DType::kFloat32, {kRead, kWidth});
      const auto row_of = [&](int64_t i) {
        return RowsRead().data<int64_t>()[i];
      };
      for (int64_t i = 0; i < kRead; ++i) {
        std::copy_n(table.data<float>() + row_of(i) * kWidth, kWidth,
                    taken.data<float>() + i * kWidth);
      }
      const Tensor wanted = expected.Run({{rows, taken}}, gradient);
      constexpr float kRate = 0.5F;
      std::vector<float> sums(kRows * kWidth, 0);
      for (int64_t i = 0; i < kRead; ++i) {
        for (int64_t j = 0; j < kWidth; ++j) {
          sums[static_cast<size_t>(row_of(i) * kWidth + j)] +=
              wanted.data<float>()[i * kWidth + j];
        }
      }
      for (size_t i = 0; i < sums.size(); ++i) {
        table.data<float>()[i] -= kRate * sums[i];
      }

      const Operation train = optimizers::Sgd(static_cast<double>(kRate))
                                  .WithSparseRows()
                                  .Minimize(step->loss);
      SessionOptions options = In(precision);
      if (placing == 1) step->table.node().set_device("/cpu:1");
      if (placing == 2) {
        options.devices = {"/cpu:0", "/cpu:1", "/cpu:2"};
        SpreadRows(step->table.node(), {"/cpu:1", "/cpu:2"});
      }
      if (placing == 1) options.devices = {"/cpu:0", "/cpu:1"};
      Session session(step->graph, options);
      session.Initialize();
      const PreparedStep prepared =
          session.Prepare({{step->rows, {kRead}}}, {}, {train});
      CHECK(prepared.info().arena_bytes < kTableBytes / 20);
      (void)session.Run({{step->rows, RowsRead()}}, std::vector<Output>(),
                        {train});
      CHECK(session.Read(step->table).BitEqual(table));
    }
  }
}

// Two layers, of which the first is updated on the devices that have it.
TEST_CASE("of a matrix that is cut half goes between devices, both ways") {
  for (const Precision precision :
       {Precision::kBFloat16, Precision::kFloat16}) {
    CAPTURE(NameOf(precision));
    std::vector<Tensor> left;
    for (const int pieces : {0, 1, 3}) {
      CAPTURE(pieces);
      Graph graph;
      const Output x = graph.Placeholder("x", DType::kFloat32, {5, kWidth});
      const Output matrix =
          graph.Variable("matrix", CopyOf(Values({kWidth, 12}, 3)));
      const Output weights =
          graph.Variable("weights", CopyOf(Values({12, 4}, 5)));
      const Output loss = Sum(Tanh(MatMul(Relu(MatMul(x, matrix)), weights)));
      const Operation train = optimizers::Sgd(0.5).Minimize(loss);
      SessionOptions options = In(precision);
      for (int i = 1; i <= pieces; ++i) {
        options.devices.push_back("/cpu:" + std::to_string(i));
      }
      if (pieces > 0) {
        for (const auto& node : graph.nodes()) {
          if (!node->IsConstant()) node->set_device("/cpu:0");
        }
        const std::vector<std::string> over(options.devices.begin() + 1,
                                            options.devices.end());
        SpreadRows(matrix.node(), over);
        for (const auto& node : graph.nodes()) {
          if (node->mutates() > 0 && node->input(0) == matrix) {
            node->set_device(over[0]);
          }
        }
        const StepRequest request = {
            .feeds = {{x, x.shape()}}, .fetches = {loss}, .targets = {train}};
        const auto step = ExtractStep(graph, request).ValueOrThrow();
        const auto devices = testing::Described(options.devices);
        ThrowIfError(passes::Refine(*step, FoldNode));
        ThrowIfError(passes::SpreadVariables(*step));
        ThrowIfError(passes::Place(*step, devices));
        ThrowIfError(passes::MixPrecision(
            *step, precision == Precision::kFloat16 ? DType::kFloat16
                                                    : DType::kBFloat16));
        passes::Prune(*step);
        ThrowIfError(passes::Verify(*step));
        int crossing = 0;
        for (const auto& node : step->nodes()) {
          for (const Output& input : node->inputs()) {
            if (input.node().device() == node->device()) continue;
            if (input.shape().scalar() || input.node().IsConstant()) continue;
            CAPTURE(node->Describe());
            CAPTURE(input.name());
            CHECK(IsHalf(input.dtype()));
            ++crossing;
          }
        }
        CHECK(crossing == 2 * pieces);
      }
      Session session(graph, options);
      session.Initialize();
      for (uint32_t i = 0; i < 3; ++i) {
        (void)session.Run({{x, Values(x.shape(), 7 + i)}},
                          std::vector<Output>(), {train});
      }
      const std::vector<Tensor> now = {session.Read(matrix),
                                       session.Read(weights)};
      if (pieces == 0) left = now;
      CHECK(now[0].BitEqual(left[0]));
      CHECK(now[1].BitEqual(left[1]));
    }
  }
}

}  // namespace
}  // namespace sluice
