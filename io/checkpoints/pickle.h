// Reader of Python's pickles, protocols 2 to 5 (PEP 307, 3154 and 574;
// CPython's Lib/pickletools.py has the grammar), as data: the instructions for
// building objects are kept, none is ever followed. A pickle is a program for a
// stack machine:
//
//   pickle := instruction* "."
//   instruction := push a value | join those on top into one | put them into
//                  the container below | store in the memo, fetch from there
#ifndef SLUICE_IO_CHECKPOINTS_PICKLE_H_
#define SLUICE_IO_CHECKPOINTS_PICKLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace sluice {

// What a pickle holds. Values name each other by number, so that they may share
// and even contain one another; a view of the pickle's bytes, which must
// outlive it.
struct Pickle {
  using Id = uint32_t;
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,   // its value is not kept
    kLong,    // an integer beyond 64 bits; its value is not kept
    kString,  // UTF-8, unchecked
    kBytes,   // not text
    kTuple,
    kList,
    kDict,  // items: key, value, key, value, ...
    kSet,
    kGlobal,      // the class or function `text` of `module`
    kObject,      // items: a callable and the tuple it is to be called with,
                  // then what is put in: key, value, ... as in a dictionary;
                  // state and elements are not kept
    kPersistent,  // stands for what lies outside; items: its identifier
  };
  struct Value {
    Kind kind = Kind::kNone;
    int64_t integer = 0;  // a bool's 0 or 1, an integer
    std::string_view text;
    std::string_view module;
    std::vector<Id> items;
  };

  std::deque<Value> values;
  Id root = 0;

  const Value& operator[](Id id) const { return values[id]; }
};

// The most bytes of a pickle that are read; those of files of weights have far
// fewer, since the numbers lie outside.
inline constexpr size_t kMaxPickleBytes = size_t{8} << 20;

// Parses a pickle, in memory and time in proportion to its bytes: less than 150
// bytes of memory for each. kDataLoss for anything malformed; kUnimplemented
// for other protocols, rare instructions and more than kMaxPickleBytes.
Result<Pickle> ParsePickle(std::string_view bytes);

// For messages: "a list", "an object of argparse.Namespace".
std::string Describe(const Pickle& pickle, Pickle::Id id);

}  // namespace sluice

#endif  // SLUICE_IO_CHECKPOINTS_PICKLE_H_
