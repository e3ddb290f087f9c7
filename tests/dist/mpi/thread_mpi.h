// An MPI whose ranks are threads of this process.
#ifndef SLUICE_TESTS_DIST_MPI_THREAD_MPI_H_
#define SLUICE_TESTS_DIST_MPI_THREAD_MPI_H_

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/mpi/calls.h"

namespace sluice::dist::testing {

class ThreadMpi {
 public:
  // Of which so many share memory.
  explicit ThreadMpi(int size, int local_size)
      : local_size_(local_size),
        world_(std::make_shared<Room>(FirstOf(size))) {}

  // Runs `rank` as every rank; it uses Calls().
  void Run(const std::function<void(int rank)>& rank) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < world_->ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        mpi = this;
        me = static_cast<int>(i);
        rank(me);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static const MpiCalls& Calls() {
    static const MpiCalls calls = {kMpiVersion, &Begin,    &Split,
                                   &Sum,        &Largest,  &Broadcast,
                                   &AllGather,  &AllToAll, &End};
    return calls;
  }

 private:
  // Where the ranks of a communicator meet.
  struct Room {
    explicit Room(std::vector<int> of)
        : ranks(std::move(of)),
          all(static_cast<std::ptrdiff_t>(ranks.size())),
          given(ranks.size()) {}
    const std::vector<int> ranks;  // of the job
    std::barrier<> all;
    std::vector<std::string> given;
    std::mutex mutex;
    std::map<int, std::shared_ptr<Room>> parts;  // of the last split, by colour
  };
  // What a number of a communicator stands for: one rank of it.
  struct Seat {
    ThreadMpi* mpi;
    std::shared_ptr<Room> room;
    int rank;
  };

  inline static thread_local ThreadMpi* mpi = nullptr;
  inline static thread_local int me = 0;
  inline static std::mutex seats_mutex;
  inline static std::vector<Seat> seats;

  static std::vector<int> FirstOf(int size) {
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  static Seat SeatOf(int communicator) {
    const std::lock_guard lock(seats_mutex);
    return seats[static_cast<size_t>(communicator)];
  }

  static MpiPlace Sit(const Seat& seat) {
    const std::vector<int>& ranks = seat.room->ranks;
    const auto host = [&](int rank) {
      return ranks[static_cast<size_t>(rank)] / seat.mpi->local_size_;
    };
    MpiPlace place;
    place.rank = seat.rank;
    place.size = static_cast<int>(ranks.size());
    place.local_size = 0;
    for (int rank = 0; rank < place.size; ++rank) {
      if (host(rank) != host(seat.rank)) continue;
      if (rank < seat.rank) ++place.local_rank;
      ++place.local_size;
    }
    const std::lock_guard lock(seats_mutex);
    place.communicator = static_cast<int>(seats.size());
    seats.push_back(seat);
    return place;
  }

  // Everybody's data, looked at by all before any of it is changed.
  template <typename Look, typename Change>
  static const char* Together(const Seat& seat, const void* data, int64_t bytes,
                              Look look, Change change) {
    Room& room = *seat.room;
    auto& mine = room.given[static_cast<size_t>(seat.rank)];
    mine.assign(static_cast<const char*>(data),
                static_cast<const char*>(data) + bytes);
    room.all.arrive_and_wait();
    // A real one ends the job, or waits for ever.
    for (const std::string& other : room.given) {
      if (other.size() != mine.size()) std::abort();
    }
    look(room.given);
    room.all.arrive_and_wait();
    change();
    return nullptr;
  }

  static const char* Begin(MpiAdd add, MpiPlace* place) {
    if (me == 0) mpi->add_ = add;
    *place = Sit({mpi, mpi->world_, me});
    mpi->world_->all.arrive_and_wait();
    return nullptr;
  }

  static const char* Split(int communicator, int color, int key,
                           MpiPlace* part) {
    struct Wish {
      int color, key, rank;
    };
    const Seat seat = SeatOf(communicator);
    Room& room = *seat.room;
    const Wish own = {color, key, seat.rank};
    std::vector<Wish> members;
    const auto look = [&](const std::vector<std::string>& given) {
      for (const std::string& bytes : given) {
        Wish wish{};
        std::memcpy(&wish, bytes.data(), sizeof(wish));
        if (wish.color == color) members.push_back(wish);
      }
    };
    Together(seat, &own, sizeof(own), look, [] {});
    std::stable_sort(
        members.begin(), members.end(),
        [](const Wish& a, const Wish& b) { return a.key < b.key; });
    if (members[0].rank == seat.rank) {
      std::vector<int> ranks;
      for (const Wish& member : members) {
        ranks.push_back(room.ranks[static_cast<size_t>(member.rank)]);
      }
      const std::lock_guard lock(room.mutex);
      room.parts[color] = std::make_shared<Room>(std::move(ranks));
    }
    room.all.arrive_and_wait();
    std::shared_ptr<Room> made;
    {
      const std::lock_guard lock(room.mutex);
      made = room.parts.at(color);
    }
    room.all.arrive_and_wait();
    part->size = 0;
    if (color < 0) return nullptr;
    const auto place =
        std::find_if(members.begin(), members.end(),
                     [&](const Wish& wish) { return wish.rank == seat.rank; });
    *part = Sit({seat.mpi, made, static_cast<int>(place - members.begin())});
    return nullptr;
  }

  template <typename T>
  static void Add(void* sum, const void* addend, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      static_cast<T*>(sum)[i] += static_cast<const T*>(addend)[i];
    }
  }

  static const char* Sum(int communicator, MpiElement element, void* data,
                         int64_t count) {
    const Seat seat = SeatOf(communicator);
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
            seat.mpi->add_(element, sum.data(), addend, count);
        }
      }
    };
    return Together(seat, data, bytes, add, [&] {
      std::memcpy(data, sum.data(), static_cast<size_t>(bytes));
    });
  }

  static const char* Largest(int communicator, uint64_t* values, int count) {
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
    return Together(SeatOf(communicator), values, count * 8, look,
                    [&] { std::copy(largest.begin(), largest.end(), values); });
  }

  static const char* Broadcast(int communicator, void* data, int64_t bytes,
                               int root) {
    std::string of_root;
    return Together(
        SeatOf(communicator), data, bytes,
        [&](const std::vector<std::string>& given) {
          of_root = given[static_cast<size_t>(root)];
        },
        [&] { std::memcpy(data, of_root.data(), of_root.size()); });
  }

  static const char* AllGather(int communicator, const void* mine, int64_t each,
                               void* all) {
    std::string joined;
    return Together(
        SeatOf(communicator), mine, each,
        [&](const std::vector<std::string>& given) {
          for (const std::string& bytes : given) joined += bytes;
        },
        [&] { std::memcpy(all, joined.data(), joined.size()); });
  }

  static const char* AllToAll(int communicator, const void* mine, int64_t each,
                              void* all) {
    if (mine == all) std::abort();  // a real one refuses that
    const Seat seat = SeatOf(communicator);
    std::string dealt;
    return Together(
        seat, mine, each * static_cast<int64_t>(seat.room->ranks.size()),
        [&](const std::vector<std::string>& given) {
          for (const std::string& bytes : given) {
            dealt += bytes.substr(static_cast<size_t>(seat.rank * each),
                                  static_cast<size_t>(each));
          }
        },
        [&] { std::memcpy(all, dealt.data(), dealt.size()); });
  }

  static const char* End() {
    mpi->world_->all.arrive_and_wait();
    return nullptr;
  }

  const int local_size_;
  const std::shared_ptr<Room> world_;
  MpiAdd add_ = nullptr;
};

}  // namespace sluice::dist::testing

#endif  // SLUICE_TESTS_DIST_MPI_THREAD_MPI_H_
