#include "io/checkpoints/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;
using Value = Pickle::Value;
using Ids = std::vector<Id>;

static_assert(std::endian::native == std::endian::little,
              "the numbers of a pickle are little-endian");

// Every value takes a byte at least, so that their number fits an Id.
static_assert(kMaxPickleBytes < ~Id{0});
constexpr int kMaxProtocol = 5;
constexpr Id kNoValue = ~Id{0};

// The instructions and their operands, in order.
class Source {
 public:
  explicit Source(std::string_view bytes) : rest_(bytes) {}

  size_t left() const { return rest_.size(); }
  Result<std::string_view> Take(uint64_t count) {
    if (count > rest_.size()) {
      return DataLoss(fmt::format("truncated: {} bytes where {} should follow",
                                  rest_.size(), count));
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  Result<T> Number() {
    SLUICE_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T)));
    T number;
    std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }
  // Bytes behind their count.
  template <typename Count>
  Result<std::string_view> Counted() {
    SLUICE_ASSIGN_OR_RETURN(const Count count, Number<Count>());
    return Take(count);
  }
  Result<std::string_view> Line() {
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return DataLoss("a line does not end");
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

 private:
  std::string_view rest_;
};

// The stack machine. Its errors do not say where.
class Machine {
 public:
  explicit Machine(std::string_view bytes)
      : source_(bytes), max_memo_(bytes.size()) {}

  // Carries out one instruction.
  Status Step();
  bool stopped() const { return stopped_; }
  size_t left() const { return source_.left(); }
  Pickle Take() && { return std::move(pickle_); }

 private:
  Status CheckProtocol();
  Status Stop();

  Status Push(Value value);
  template <typename T>
  Status PushInt();
  template <typename Count>
  Status PushLong();
  template <typename Count>
  Status PushText(Kind kind);
  Status PushFloat();
  Status PushGlobal();
  Status PushStackGlobal();
  Status PushJoined(Kind kind, Result<Ids> items);
  // What calling a function or class would give; `call` is it and the tuple of
  // its arguments.
  Status PushObject(Result<Ids> call);
  Status PushObjectWithKeywords();

  // Values above the topmost mark.
  size_t depth() const {
    return stack_.size() - (marks_.empty() ? 0 : marks_.back());
  }
  // The topmost `count` values off the stack, the lowest first.
  Result<Ids> Pop(size_t count);
  // All above the topmost mark, off the stack with the mark.
  Result<Ids> PopMark();
  Status Drop(const Result<Ids>& values) { return values.status(); }

  // These put `items`, taken off the stack, into the container then on top.
  Status Append(const Result<Ids>& items);
  Status SetItems(const Result<Ids>& items);
  Status Build(const Result<Ids>& state);

  template <typename Key>
  Status Store();
  template <typename Key>
  Status Fetch();
  Status StoreAt(size_t key);

  Source source_;
  bool stopped_ = false;
  Pickle pickle_;
  Ids stack_;
  std::vector<size_t> marks_;  // heights of the stack
  Ids memo_;                   // kNoValue where nothing is stored
  size_t max_memo_;
  size_t memo_entries_ = 0;
};

// The names behind the instructions are those of pickletools.
Status Machine::Step() {
  SLUICE_ASSIGN_OR_RETURN(const auto instruction, source_.Number<uint8_t>());
  switch (instruction) {
    case 0x80:  // PROTO
      return CheckProtocol();
    case 0x95:  // FRAME: how many bytes to read ahead
      return source_.Take(8).status();
    case '.':  // STOP
      return Stop();

    case 'N':  // NONE
      return Push({.kind = Kind::kNone});
    case 0x88:  // NEWTRUE
      return Push({.kind = Kind::kBool, .integer = 1});
    case 0x89:  // NEWFALSE
      return Push({.kind = Kind::kBool, .integer = 0});
    case 'K':  // BININT1
      return PushInt<uint8_t>();
    case 'M':  // BININT2
      return PushInt<uint16_t>();
    case 'J':  // BININT
      return PushInt<int32_t>();
    case 0x8a:  // LONG1
      return PushLong<uint8_t>();
    case 0x8b:  // LONG4
      return PushLong<uint32_t>();
    case 'G':  // BINFLOAT
      return PushFloat();
    case 0x8c:  // SHORT_BINUNICODE
    case 'U':   // SHORT_BINSTRING: text of Python 2
      return PushText<uint8_t>(Kind::kString);
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
      return PushText<uint32_t>(Kind::kString);
    case 0x8d:  // BINUNICODE8
      return PushText<uint64_t>(Kind::kString);
    case 'C':  // SHORT_BINBYTES
      return PushText<uint8_t>(Kind::kBytes);
    case 'B':  // BINBYTES
      return PushText<uint32_t>(Kind::kBytes);
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      return PushText<uint64_t>(Kind::kBytes);
    case 'c':  // GLOBAL
      return PushGlobal();
    case 0x93:  // STACK_GLOBAL
      return PushStackGlobal();

    case '(':  // MARK
      marks_.push_back(stack_.size());
      return {};
    case '0':  // POP: a mark where there is nothing above it
      return Drop(depth() > 0 ? Pop(1) : PopMark());
    case '1':  // POP_MARK
      return Drop(PopMark());

    case ')':  // EMPTY_TUPLE
      return Push({.kind = Kind::kTuple});
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return PushJoined(Kind::kTuple, Pop(instruction - 0x84));
    case 't':  // TUPLE
      return PushJoined(Kind::kTuple, PopMark());
    case ']':  // EMPTY_LIST
      return Push({.kind = Kind::kList});
    case 'l':  // LIST
      return PushJoined(Kind::kList, PopMark());
    case '}':  // EMPTY_DICT
      return Push({.kind = Kind::kDict});
    case 'd':  // DICT
      return PushJoined(Kind::kDict, PopMark());
    case 0x8f:  // EMPTY_SET
      return Push({.kind = Kind::kSet});
    case 0x91:  // FROZENSET
      return PushJoined(Kind::kSet, PopMark());
    case 'Q':  // BINPERSID
      return PushJoined(Kind::kPersistent, Pop(1));

    case 'a':  // APPEND
      return Append(Pop(1));
    case 'e':   // APPENDS
    case 0x90:  // ADDITEMS
      return Append(PopMark());
    case 's':  // SETITEM
      return SetItems(Pop(2));
    case 'u':  // SETITEMS
      return SetItems(PopMark());

    case 'R':   // REDUCE
    case 0x81:  // NEWOBJ
      return PushObject(Pop(2));
    case 0x92:  // NEWOBJ_EX
      return PushObjectWithKeywords();
    case 'b':  // BUILD
      return Build(Pop(1));

    case 'q':  // BINPUT
      return Store<uint8_t>();
    case 'r':  // LONG_BINPUT
      return Store<uint32_t>();
    case 0x94:  // MEMOIZE
      return StoreAt(memo_entries_);
    case 'h':  // BINGET
      return Fetch<uint8_t>();
    case 'j':  // LONG_BINGET
      return Fetch<uint32_t>();
    default:
      return Unimplemented(
          fmt::format("instruction 0x{:02x} is not supported", instruction));
  }
}

Status Machine::CheckProtocol() {
  SLUICE_ASSIGN_OR_RETURN(const int protocol, source_.Number<uint8_t>());
  if (protocol <= kMaxProtocol) return {};
  return Unimplemented(fmt::format("protocol {} is not supported", protocol));
}

Status Machine::Stop() {
  if (depth() == 0) return DataLoss("it ends without a value");
  pickle_.root = stack_.back();
  stopped_ = true;
  return {};
}

Status Machine::Push(Value value) {
  stack_.push_back(static_cast<Id>(pickle_.values.size()));
  pickle_.values.push_back(std::move(value));
  return {};
}

template <typename T>
Status Machine::PushInt() {
  SLUICE_ASSIGN_OR_RETURN(const T integer, source_.Number<T>());
  return Push({.kind = Kind::kInt, .integer = integer});
}

template <typename Count>
Status Machine::PushLong() {
  // Two's complement; no digits are 0.
  SLUICE_ASSIGN_OR_RETURN(const std::string_view digits,
                          source_.Counted<Count>());
  if (digits.size() > sizeof(int64_t)) return Push({.kind = Kind::kLong});
  int64_t integer = 0;
  if (!digits.empty()) {
    if ((digits.back() & 0x80) != 0) integer = -1;
    std::memcpy(&integer, digits.data(), digits.size());
  }
  return Push({.kind = Kind::kInt, .integer = integer});
}

Status Machine::PushFloat() {
  SLUICE_RETURN_IF_ERROR(source_.Take(sizeof(double)).status());
  return Push({.kind = Kind::kFloat});
}

template <typename Count>
Status Machine::PushText(Kind kind) {
  SLUICE_ASSIGN_OR_RETURN(const std::string_view text,
                          source_.Counted<Count>());
  return Push({.kind = kind, .text = text});
}

Status Machine::PushGlobal() {
  SLUICE_ASSIGN_OR_RETURN(const std::string_view module, source_.Line());
  SLUICE_ASSIGN_OR_RETURN(const std::string_view name, source_.Line());
  return Push({.kind = Kind::kGlobal, .text = name, .module = module});
}

Status Machine::PushStackGlobal() {
  SLUICE_ASSIGN_OR_RETURN(const Ids names, Pop(2));
  const Value& module = pickle_[names[0]];
  const Value& name = pickle_[names[1]];
  if (module.kind != Kind::kString || name.kind != Kind::kString) {
    return DataLoss("the name of a class or function is not a string");
  }
  return Push(
      {.kind = Kind::kGlobal, .text = name.text, .module = module.text});
}

Status Machine::PushJoined(Kind kind, Result<Ids> items) {
  if (!items.ok()) return items.status();
  if (kind == Kind::kDict && items->size() % 2 != 0) {
    return DataLoss("a key without a value");
  }
  return Push({.kind = kind, .items = *std::move(items)});
}

Status Machine::PushObject(Result<Ids> call) {
  if (!call.ok()) return call.status();
  const Kind callable = pickle_[(*call)[0]].kind;
  if ((callable != Kind::kGlobal && callable != Kind::kObject) ||
      pickle_[(*call)[1]].kind != Kind::kTuple) {
    return DataLoss(fmt::format("{} is called with {}",
                                Describe(pickle_, (*call)[0]),
                                Describe(pickle_, (*call)[1])));
  }
  return Push({.kind = Kind::kObject, .items = *std::move(call)});
}

Status Machine::PushObjectWithKeywords() {
  SLUICE_RETURN_IF_ERROR(Drop(Pop(1)));
  return PushObject(Pop(2));
}

Result<Ids> Machine::Pop(size_t count) {
  if (count > depth()) return DataLoss("the stack is empty");
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
  Ids popped(first, stack_.end());
  stack_.erase(first, stack_.end());
  return popped;
}

Result<Ids> Machine::PopMark() {
  if (marks_.empty()) return DataLoss("there is no mark on the stack");
  SLUICE_ASSIGN_OR_RETURN(Ids popped, Pop(depth()));
  marks_.pop_back();
  return popped;
}

Status Machine::Append(const Result<Ids>& items) {
  if (!items.ok()) return items.status();
  if (depth() == 0) return DataLoss("the stack is empty");
  Value& top = pickle_.values[stack_.back()];
  if (top.kind == Kind::kObject) return {};  // it would know what to do
  if (top.kind != Kind::kList && top.kind != Kind::kSet) {
    return DataLoss(fmt::format("elements are added to {}",
                                Describe(pickle_, stack_.back())));
  }
  top.items.insert(top.items.end(), items->begin(), items->end());
  return {};
}

Status Machine::SetItems(const Result<Ids>& items) {
  if (!items.ok()) return items.status();
  if (items->size() % 2 != 0) return DataLoss("a key without a value");
  if (depth() == 0) return DataLoss("the stack is empty");
  Value& top = pickle_.values[stack_.back()];
  if (top.kind != Kind::kDict && top.kind != Kind::kObject) {
    return DataLoss(fmt::format("keys and values are put into {}",
                                Describe(pickle_, stack_.back())));
  }
  top.items.insert(top.items.end(), items->begin(), items->end());
  return {};
}

Status Machine::Build(const Result<Ids>& state) {
  if (!state.ok()) return state.status();
  if (depth() == 0) return DataLoss("the stack is empty");
  if (pickle_[stack_.back()].kind == Kind::kObject) return {};
  return DataLoss(
      fmt::format("{} is given a state", Describe(pickle_, stack_.back())));
}

template <typename Key>
Status Machine::Store() {
  SLUICE_ASSIGN_OR_RETURN(const Key key, source_.Number<Key>());
  return StoreAt(key);
}

Status Machine::StoreAt(size_t key) {
  if (depth() == 0) return DataLoss("the stack is empty");
  // Writers count from 0, and each entry takes them some bytes.
  if (key >= max_memo_) {
    return DataLoss(fmt::format("entry {} of the memo is stored", key));
  }
  if (key >= memo_.size()) memo_.resize(key + 1, kNoValue);
  if (memo_[key] == kNoValue) ++memo_entries_;
  memo_[key] = stack_.back();
  return {};
}

template <typename Key>
Status Machine::Fetch() {
  SLUICE_ASSIGN_OR_RETURN(const Key key, source_.Number<Key>());
  if (key >= memo_.size() || memo_[key] == kNoValue) {
    return DataLoss(fmt::format("entry {} of the memo is missing", key));
  }
  stack_.push_back(memo_[key]);
  return {};
}

}  // namespace

Result<Pickle> ParsePickle(std::string_view bytes) {
  if (bytes.size() > kMaxPickleBytes) {
    return Unimplemented(
        fmt::format("a pickle of {} bytes, at most {} are read", bytes.size(),
                    kMaxPickleBytes));
  }
  Machine machine(bytes);
  while (!machine.stopped()) {
    const size_t at = bytes.size() - machine.left();
    if (const Status done = machine.Step(); !done.ok()) {
      return done.WithContext(fmt::format("byte {} of the pickle", at));
    }
  }
  return std::move(machine).Take();
}

std::string Describe(const Pickle& pickle, Pickle::Id id) {
  const Value& value = pickle[id];
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kLong:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kString:
      return "a string";
    case Kind::kBytes:
      return "bytes";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kSet:
      return "a set";
    case Kind::kGlobal:
      return fmt::format("{}.{}", value.module, value.text);
    case Kind::kObject: {
      const Value& callable = pickle[value.items[0]];
      if (callable.kind != Kind::kGlobal) return "an object";
      return fmt::format("an object of {}.{}", callable.module, callable.text);
    }
    case Kind::kPersistent:
      return "a persistent identifier";
  }
  return "";
}

}  // namespace sluice
