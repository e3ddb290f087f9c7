// A job of which this is one rank, and the others say any bytes.
#ifndef SLUICE_TESTS_SUPPORT_STRANGE_COLLECTIVE_H_
#define SLUICE_TESTS_SUPPORT_STRANGE_COLLECTIVE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/runtime/collective.h"
#include "engine/status.h"

namespace sluice::testing {

class StrangeCollective final : public Collective {
 public:
  // `said`, one word behind another, must outlive it; zeros behind them.
  StrangeCollective(int rank, int size, std::string_view said)
      : rank_(rank), size_(size), said_(said) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Broadcast(std::string_view, void* data, int64_t bytes,
                   int root) override {
    if (root != rank_) Say(data, bytes);
    return {};
  }
  Status AllGather(std::string_view, const void* mine, int64_t each,
                   void* all) override {
    for (int rank = 0; rank < size_; ++rank) {
      auto* const to = static_cast<std::byte*>(all) + rank * each;
      if (rank != rank_) {
        Say(to, each);
      } else if (each > 0 && to != mine) {
        std::memcpy(to, mine, static_cast<size_t>(each));
      }
    }
    return {};
  }
  Status Barrier(std::string_view) override { return {}; }

  Status AllReduce(std::string_view, DType, void*, int64_t,
                   Reduction) override {
    return Unimplemented("strangers add nothing");
  }
  Status SumTree(std::string_view, DType, int64_t, std::span<const void* const>,
                 void*, int64_t) override {
    return Unimplemented("strangers add nothing");
  }
  Status ReduceScatter(std::string_view, DType, void*, int64_t, int64_t,
                       Reduction) override {
    return Unimplemented("strangers add nothing");
  }
  Status AllToAll(std::string_view, const void*, int64_t, void*) override {
    return Unimplemented("strangers deal nothing");
  }

 private:
  void Say(void* to, int64_t bytes) {
    const auto size = static_cast<size_t>(bytes);
    const size_t known = std::min(size, said_.size());
    if (known > 0) std::memcpy(to, said_.data(), known);
    std::fill_n(static_cast<std::byte*>(to) + known, size - known,
                std::byte{0});
    said_.remove_prefix(known);
  }

  const int rank_, size_;
  std::string_view said_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_STRANGE_COLLECTIVE_H_
