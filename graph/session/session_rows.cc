// A session's variables by rows, and those whose rows are on several devices.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "graph/session/session_state.h"

namespace sluice {

Result<Variable*> WithRows(Device& home, const std::string& variable) {
  Variable* const found = home.variables().Find(variable);
  if (found == nullptr || !found->initialized) {
    return FailedPrecondition(
        fmt::format("variable '{}' is not initialised", variable));
  }
  return found;
}

Result<Tensor> RowsIn(const Tensor& value, const std::string& variable,
                      int64_t begin, int64_t count) {
  const Shape& shape = value.shape();
  if (shape.rank() > 0 && begin >= 0 && count >= 0 && begin <= shape[0] &&
      count <= shape[0] - begin) {
    return value.Rows(begin, begin + count);
  }
  return InvalidArgument(
      fmt::format("variable '{}' is {}: it has no {} rows from row {} on",
                  variable, TensorTypeOf(value).ToString(), count, begin));
}

namespace {

// That a variable has these rows.
void CheckRows(const Output& variable, int64_t begin, const Tensor& rows) {
  const Shape& shape = variable.shape();
  Shape wanted = shape;
  if (rows.shape().rank() > 0 && shape.rank() > 0) {
    wanted.set(0, rows.shape()[0]);
    if (rows.dtype() == variable.dtype() && rows.shape() == wanted &&
        begin >= 0 && begin <= shape[0] &&
        rows.shape()[0] <= shape[0] - begin) {
      return;
    }
  }
  throw Error(Code::kInvalidArgument,
              fmt::format("variable '{}' is {}: {} are no rows of it from row "
                          "{} on",
                          variable.name(), variable.type().ToString(),
                          TensorTypeOf(rows).ToString(), begin));
}

// What holds a piece of a variable: it has a value, and the piece's type, which
// another session may have given another of its name.
Variable& VariableOfPiece(Device& home, const Output& variable,
                          const RowPiece& piece) {
  const std::string& name = variable.node().origin();
  (void)WithRows(home, name).ValueOrThrow();
  Shape shape = variable.shape();
  shape.set(0, piece.end - piece.begin);
  return *home.variables()
              .Declare(name, {variable.dtype(), shape})
              .ValueOrThrow();
}

// The part of rows [begin, begin + n) that a piece has: fn(from, to), numbers
// of the whole.
template <typename Fn>
void ForOverlaps(const std::vector<RowPiece>& pieces, int64_t begin,
                 int64_t count, const Fn& fn) {
  for (const RowPiece& piece : pieces) {
    const int64_t from = std::max(begin, piece.begin);
    const int64_t to = std::min(begin + count, piece.end);
    if (from < to) fn(piece, from, to);
  }
}

}  // namespace

std::vector<RowPiece> Session::Impl::PiecesOf(const Output& variable) const {
  if (SpreadsRows(variable.node())) return sluice::PiecesOf(variable.node());
  const std::string& asked = variable.node().device();
  return {{asked.empty() ? options.devices[0] : asked, 0, variable.shape()[0]}};
}

Device* Session::Impl::HereOf(const RowPiece& piece) const {
  if (cluster != nullptr && !IsHere(piece.device, options.task)) return nullptr;
  for (const auto& device : devices) {
    if (device->name().ToString() == piece.device) return device.get();
  }
  throw Error(Code::kNotFound,
              fmt::format("no device '{}' for rows {} to {} of a variable",
                          piece.device, piece.begin, piece.end));
}

void Session::ReadRows(const Output& variable, int64_t begin,
                       Tensor* rows) const {
  Impl::RequireVariable(variable);
  CheckRows(variable, begin, *rows);
  const std::string& name = variable.node().origin();
  ForOverlaps(
      impl_->PiecesOf(variable), begin, rows->shape()[0],
      [&](const RowPiece& piece, int64_t from, int64_t to) {
        Tensor mine = rows->Rows(from - begin, to - begin);
        Device* const here = impl_->HereOf(piece);
        if (here == nullptr) {
          const Tensor value =
              impl_->cluster
                  ->ReadRows(piece.device, name, from - piece.begin, to - from)
                  .ValueOrThrow();
          if (TensorTypeOf(value) != TensorTypeOf(mine)) {
            throw Error(
                Code::kDataLoss,
                fmt::format("{} gives {} for rows {} of '{}'", piece.device,
                            TensorTypeOf(value).ToString(),
                            TensorTypeOf(mine).ToString(), name));
          }
          if (mine.bytes() > 0) {
            std::memcpy(mine.raw(), value.raw(), mine.bytes());
          }
          return;
        }
        const OwnTurn turn(*impl_);
        Variable& found = VariableOfPiece(*here, variable, piece);
        const ReaderLock unchanged(found.mutex);
        const Tensor value =
            RowsIn(found.value, name, from - piece.begin, to - from)
                .ValueOrThrow();
        ThrowIfError(here->memory().Load(value, mine));
      });
}

void Session::WriteRows(const Output& variable, int64_t begin,
                        const Tensor& rows) {
  Impl::RequireVariable(variable);
  CheckRows(variable, begin, rows);
  const std::string& name = variable.node().origin();
  ForOverlaps(impl_->PiecesOf(variable), begin, rows.shape()[0],
              [&](const RowPiece& piece, int64_t from, int64_t to) {
                const Tensor mine = rows.Rows(from - begin, to - begin);
                Device* const here = impl_->HereOf(piece);
                if (here == nullptr) {
                  ThrowIfError(impl_->cluster->WriteRows(
                      piece.device, name, from - piece.begin, mine));
                  return;
                }
                const OwnTurn turn(*impl_);
                impl_->RequireNotFrozen(variable);
                Variable& found = VariableOfPiece(*here, variable, piece);
                const WriterLock alone(found.mutex);
                Tensor value =
                    RowsIn(found.value, name, from - piece.begin, to - from)
                        .ValueOrThrow();
                ThrowIfError(here->memory().Store(mine, value));
              });
}

void Session::Impl::WritePieces(const Output& variable, const Tensor& value) {
  const std::string& name = variable.node().origin();
  for (const RowPiece& piece : PiecesOf(variable)) {
    const Tensor mine = value.Rows(piece.begin, piece.end);
    Device* const here = HereOf(piece);
    if (here == nullptr) {
      ThrowIfError(cluster->Write(piece.device, name, mine));
      continue;
    }
    Variable* const found =
        here->variables().Declare(name, TensorTypeOf(mine)).ValueOrThrow();
    const WriterLock alone(found->mutex);
    ThrowIfError(here->memory().Store(mine, found->value));
    found->initialized = true;
  }
}

bool Session::Impl::HavePieces(const Output& variable) const {
  const std::string& name = variable.node().origin();
  for (const RowPiece& piece : PiecesOf(variable)) {
    Device* const here = HereOf(piece);
    if (here == nullptr) {
      if (!cluster->IsInitialized(piece.device, name).ValueOrThrow()) {
        return false;
      }
      continue;
    }
    const OwnTurn turn(*this);
    const Variable* const found = here->variables().Find(name);
    if (found == nullptr || !found->initialized) return false;
  }
  return true;
}

}  // namespace sluice
