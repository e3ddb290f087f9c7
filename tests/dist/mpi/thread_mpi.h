// An MPI whose ranks are threads of this process.
#ifndef SLUICE_TESTS_DIST_MPI_THREAD_MPI_H_
#define SLUICE_TESTS_DIST_MPI_THREAD_MPI_H_

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dist/mpi/calls.h"

namespace sluice::dist::testing {

class ThreadMpi {
 public:
  // Of which so many share memory.
  explicit ThreadMpi(int size, int local_size)
      : size_(size),
        local_size_(local_size),
        all_(size),
        given_(static_cast<size_t>(size)) {}

  // Runs `rank` as every rank; it uses Calls().
  void Run(const std::function<void(int rank)>& rank) {
    std::vector<std::thread> threads;
    for (int i = 0; i < size_; ++i) {
      threads.emplace_back([&, i] {
        mpi = this;
        me = i;
        rank(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static const MpiCalls& Calls() {
    static const MpiCalls calls = {kMpiVersion, &Begin,     &Sum,      &Largest,
                                   &Broadcast,  &AllGather, &AllToAll, &End};
    return calls;
  }

 private:
  inline static thread_local ThreadMpi* mpi = nullptr;
  inline static thread_local int me = 0;

  // Everybody's data, looked at by all before any of it is changed.
  template <typename Look, typename Change>
  static const char* Together(const void* data, int64_t bytes, Look look,
                              Change change) {
    auto& mine = mpi->given_[static_cast<size_t>(me)];
    mine.assign(static_cast<const char*>(data),
                static_cast<const char*>(data) + bytes);
    mpi->all_.arrive_and_wait();
    // A real one ends the job, or waits for ever.
    for (const std::string& other : mpi->given_) {
      if (other.size() != mine.size()) std::abort();
    }
    look(mpi->given_);
    mpi->all_.arrive_and_wait();
    change();
    return nullptr;
  }

  static const char* Begin(MpiAdd add, MpiPlace* place) {
    if (me == 0) mpi->add_ = add;
    *place = {me, mpi->size_, me % mpi->local_size_, mpi->local_size_};
    mpi->all_.arrive_and_wait();
    return nullptr;
  }

  template <typename T>
  static void Add(void* sum, const void* addend, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      static_cast<T*>(sum)[i] += static_cast<const T*>(addend)[i];
    }
  }

  static const char* Sum(MpiElement element, void* data, int64_t count) {
    const int64_t widths[] = {4, 8, 4, 8, 2, 2};
    const int64_t bytes = count * widths[static_cast<int>(element)];
    std::string sum;
    const auto add = [&](const std::vector<std::string>& given) {
      sum = given[0];
      for (size_t rank = 1; rank < given.size(); ++rank) {
        const void* const addend = given[rank].data();
        switch (element) {
          case MpiElement::kFloat32:
            Add<float>(sum.data(), addend, count);
            break;
          case MpiElement::kFloat64:
            Add<double>(sum.data(), addend, count);
            break;
          case MpiElement::kInt32:
            Add<uint32_t>(sum.data(), addend, count);
            break;
          case MpiElement::kInt64:
            Add<uint64_t>(sum.data(), addend, count);
            break;
          default:
            mpi->add_(element, sum.data(), addend, count);
        }
      }
    };
    return Together(data, bytes, add, [&] {
      std::memcpy(data, sum.data(), static_cast<size_t>(bytes));
    });
  }

  static const char* Largest(uint64_t* values, int count) {
    std::vector<uint64_t> largest(static_cast<size_t>(count));
    const auto look = [&](const std::vector<std::string>& given) {
      for (const std::string& bytes : given) {
        std::vector<uint64_t> of(largest.size());
        std::memcpy(of.data(), bytes.data(), bytes.size());
        for (size_t i = 0; i < of.size(); ++i) {
          largest[i] = std::max(largest[i], of[i]);
        }
      }
    };
    return Together(values, count * 8, look,
                    [&] { std::copy(largest.begin(), largest.end(), values); });
  }

  static const char* Broadcast(void* data, int64_t bytes, int root) {
    std::string of_root;
    return Together(
        data, bytes,
        [&](const std::vector<std::string>& given) {
          of_root = given[static_cast<size_t>(root)];
        },
        [&] { std::memcpy(data, of_root.data(), of_root.size()); });
  }

  static const char* AllGather(const void* mine, int64_t each, void* all) {
    std::string joined;
    return Together(
        mine, each,
        [&](const std::vector<std::string>& given) {
          for (const std::string& bytes : given) joined += bytes;
        },
        [&] { std::memcpy(all, joined.data(), joined.size()); });
  }

  static const char* AllToAll(const void* mine, int64_t each, void* all) {
    if (mine == all) std::abort();  // a real one refuses that
    std::string dealt;
    return Together(
        mine, each * mpi->size_,
        [&](const std::vector<std::string>& given) {
          for (const std::string& bytes : given) {
            dealt += bytes.substr(static_cast<size_t>(me * each),
                                  static_cast<size_t>(each));
          }
        },
        [&] { std::memcpy(all, dealt.data(), dealt.size()); });
  }

  static const char* End() {
    mpi->all_.arrive_and_wait();
    return nullptr;
  }

  const int size_, local_size_;
  std::barrier<> all_;
  std::vector<std::string> given_;
  MpiAdd add_ = nullptr;
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_MPI_THREAD_MPI_H_
