// Rows of pieces against index loops: what is counted, what lies behind it, and
// what counts nothing that there is.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/runtime/rendezvous.h"
#include "graph/compile/evaluate.h"
#include "tests/support/kernel_run.h"

namespace sluice {
namespace {

using testing::GuardedRun;
using testing::GuardedRunResult;

struct Op {
  Graph graph;
  Node* node = nullptr;
  std::vector<Tensor> values;

  Op(const std::string& op, std::vector<Tensor> inputs, Attributes attrs = {})
      : values(std::move(inputs)) {
    NodeRequest request{op, {}, std::move(attrs)};
    for (const Tensor& value : values) {
      request.inputs.emplace_back(
          graph.Placeholder("x", value.dtype(), value.shape()));
    }
    node = &graph.Add(std::move(request));
  }
  GuardedRunResult Run(int in_place = -1, const StepContext& step = {}) const {
    const KernelSpec spec = SpecOf(*node, /*deterministic=*/false);
    const KernelPtr kernel = KernelTable::Global()
                                 .FindAll(spec, DeviceType::kCpu)
                                 .front()
                                 ->make(spec)
                                 .ValueOrThrow();
    return GuardedRun(*kernel, spec, values, 0,
                      {.in_place = in_place, .fill = 0x77, .step = step});
  }
};

Tensor Int64s(const std::vector<int64_t>& values) {
  return Tensor::Vector<int64_t>(values);
}

template <typename T>
std::vector<T> Elements(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.elements()};
}

TEST_CASE("rows are dealt out to pieces and joined again") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const DType dtype = seed % 2 == 0 ? DType::kInt32 : DType::kInt64;
    const auto upto = [&](uint32_t n) {
      return static_cast<int64_t>(random() % n);
    };
    const int64_t n = upto(seed % 10 == 0 ? 5000 : 20), width = upto(5);
    const bool none = seed % 3 == 0;
    std::vector<int64_t> ends;
    for (int64_t piece = upto(9); piece >= 0; --piece) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + upto(7));
    }
    ends.back() += 1;
    const int64_t limit = ends.back();
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < n; ++i) {
      rows.push_back(
          none && random() % 4 == 0 ? -1 : upto(static_cast<uint32_t>(limit)));
    }
    Tensor table(DType::kFloat32, {limit, width});
    for (float& x : table.values<float>()) x = static_cast<float>(random());
    std::vector<Tensor> joined = {Int64s(rows).Cast(dtype)};
    int64_t begin = 0;
    for (const int64_t end : ends) {
      const Op own("RowsBetween", {Int64s(rows).Cast(dtype)},
                   {{"begin", begin}, {"end", end}, {"limit", limit}});
      const auto dealt = own.Run();
      REQUIRE(dealt.fault == "");
      std::vector<int64_t> wanted, places;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = rows[static_cast<size_t>(i)];
        if (row < begin || row >= end) continue;
        wanted.push_back(row - begin);
        places.push_back(i);
      }
      const auto count = static_cast<int64_t>(wanted.size());
      CHECK(dealt.tensors[2].IntAt(0) == count);
      wanted.resize(static_cast<size_t>(n), -1);
      places.resize(static_cast<size_t>(n), -1);
      CHECK(Elements<int64_t>(dealt.tensors[0].Cast(DType::kInt64)) == wanted);
      CHECK(Elements<int64_t>(dealt.tensors[1]) == places);

      // What is behind those that are counted is anything.
      Tensor garbled = dealt.tensors[0].Cast(DType::kInt64);
      std::fill(garbled.data<int64_t>() + count, garbled.data<int64_t>() + n,
                int64_t{1} << 30);
      const Tensor counter = Tensor::Scalar<int64_t>(count);
      const Op gather("GatherCounted",
                      {table.Rows(begin, end), garbled.Cast(dtype), counter});
      const auto got = gather.Run();
      REQUIRE(got.fault == "");
      for (int64_t i = 0; i < count * width; ++i) {
        const int64_t row = begin + wanted[static_cast<size_t>(i / width)];
        CHECK(got.tensors[0].data<float>()[i] ==
              table.data<float>()[row * width + i % width]);
      }
      // That is left as it was.
      const auto* const bytes =
          static_cast<const unsigned char*>(got.tensors[0].raw());
      for (int64_t i = 4 * count * width; i < 4 * n * width; ++i) {
        CHECK(bytes[i] == 0x77);
      }
      joined.push_back(got.tensors[0]);
      for (const int in_place : {-1, 0}) {
        const auto padded =
            Op("PadRows", {garbled.Cast(dtype), counter}).Run(in_place);
        REQUIRE(padded.fault == "");
        CHECK(Elements<int64_t>(padded.tensors[0].Cast(DType::kInt64)) ==
              wanted);
      }
      begin = end;
    }
    const auto all = Op("JoinRows", joined, {{"ends", ends}}).Run();
    const auto missing = std::find(rows.begin(), rows.end(), -1);
    if (missing != rows.end()) {
      CHECK(all.refused);
      CHECK(all.fault.find("index -1 (element " +
                           std::to_string(missing - rows.begin())) !=
            std::string::npos);
      continue;
    }
    REQUIRE(all.fault == "");
    for (int64_t i = 0; i < n * width; ++i) {
      const int64_t row = rows[static_cast<size_t>(i / width)];
      CHECK(all.tensors[0].data<float>()[i] ==
            table.data<float>()[row * width + i % width]);
    }
  }
}

TEST_CASE("a row that is none, or more rows than there are, is an error") {
  const Attributes between = {{"begin", 2}, {"end", 4}, {"limit", 6}};
  for (const int64_t bad : {int64_t{-2}, int64_t{6}, int64_t{1} << 40}) {
    const auto dealt = Op("RowsBetween", {Int64s({3, -1, bad})}, between).Run();
    CHECK(dealt.refused);
    CHECK(
        dealt.fault.find("index " + std::to_string(bad) +
                         " (element 2 of the indices) is not within [0, 6)") !=
        std::string::npos);
  }
  const Tensor table(DType::kFloat32, {4, 2});
  for (const int64_t count : {int64_t{-1}, int64_t{4}, int64_t{1} << 62}) {
    const Tensor counter = Tensor::Scalar<int64_t>(count);
    CHECK(
        Op("GatherCounted", {table, Int64s({0, 1, 2}), counter}).Run().refused);
    CHECK(Op("PadRows", {Int64s({0, 1, 2}), counter}).Run().refused);
  }
  for (const int64_t bad : {int64_t{-1}, int64_t{4}}) {
    const auto counted = [&](int64_t count) {
      return Op("GatherCounted",
                {table, Int64s({0, 1, bad}), Tensor::Scalar<int64_t>(count)})
          .Run();
    };
    CHECK(counted(2).fault == "");
    CHECK(counted(3).refused);
  }
}

// What others send need be no whole rows, nor as many as there are to be.
class Came final : public Exchange {
 public:
  explicit Came(size_t bytes) : bytes_(bytes) {}
  Status StartSend(const Edge& edge, const DeviceView&) override {
    sent_ = edge.bytes;
    return {};
  }
  Status WaitSent(const Edge&, const DeviceView&) override { return {}; }
  Status StartReceive(const Edge&, const DeviceView&) override { return {}; }
  Status WaitReceived(const Edge&, const DeviceView&) override { return {}; }
  size_t ReceivedBytes(const Edge&) override { return bytes_; }
  size_t sent() const { return sent_; }

 private:
  const size_t bytes_;
  size_t sent_ = 0;
};

TEST_CASE("a receive takes whole rows, and as many as it knows of") {
  constexpr size_t kRow = 3 * sizeof(float);
  const Tensor room(DType::kFloat32, {4, 3});
  for (size_t bytes = 0; bytes <= 4 * kRow; ++bytes) {
    CAPTURE(bytes);
    Came came(bytes);
    const StepContext step = {.exchange = &came};
    const auto rows = static_cast<int64_t>(bytes / kRow);
    const bool whole = bytes % kRow == 0;
    const Op some("RecvRowsWait", {room}, {{"key", "k"}});
    const auto told = some.Run(-1, step);
    CHECK(told.fault.empty() == whole);
    if (whole) CHECK(told.tensors[1].IntAt(0) == rows);
    for (const int64_t count :
         {rows, rows + 1, rows - 1, rows + (int64_t{1} << 62)}) {
      const Op known("RecvRowsWait", {room, Tensor::Scalar<int64_t>(count)},
                     {{"key", "k"}});
      const auto got = known.Run(-1, step);
      CHECK(got.fault.empty() == (whole && count == rows));
      if (got.fault.empty()) CHECK(got.tensors[1].IntAt(0) == rows);
    }
  }
}

TEST_CASE("a send is of the rows that are counted") {
  const Tensor slices(DType::kFloat32, {4, 3});
  for (const int64_t count : {-1, 0, 1, 3, 4, 5}) {
    CAPTURE(count);
    Came to(0);
    const Op send("SendStart", {slices, Tensor::Scalar<int64_t>(count)},
                  {{"key", "k"}});
    const auto sent = send.Run(0, {.exchange = &to});
    CHECK(sent.refused == (count < 0 || count > 4));
    if (!sent.refused) {
      CHECK(to.sent() == static_cast<size_t>(count) * 3 * sizeof(float));
    }
  }
}

}  // namespace
}  // namespace sluice
