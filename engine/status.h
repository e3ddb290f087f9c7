// Errors. From the step's run downwards functions return Status or Result<T>;
// graph building and the public API above it throw Error. Both carry a code
// and one line of text that says who failed, what was got, what was wanted.
#ifndef SLUICE_ENGINE_STATUS_H_
#define SLUICE_ENGINE_STATUS_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/visibility.h"

namespace SLUICE_PUBLIC sluice {

enum class Code : uint8_t {
  kOk,
  kInvalidArgument,     // what the caller passed can never work
  kNotFound,            // a name, file, op or kernel that does not exist
  kAlreadyExists,       // a name taken twice
  kFailedPrecondition,  // right call, wrong state (uninitialised variable)
  kOutOfRange,          // an index or label outside its range
  kDataLoss,            // corrupt or truncated bytes
  kUnimplemented,       // valid, but no kernel or feature for it
  kResourceExhausted,   // memory or disk is full
  kCancelled,           // the caller asked to stop
  kDeadlineExceeded,    // the step took longer than its deadline
  kUnavailable,         // a device, library or file system cannot be used
  kInternal,            // our own bug
};

// "invalid argument", "not found", ...
std::string_view CodeName(Code code);

// A code and a message; the ok value is one null pointer, so returning it
// costs nothing on the step's hot path.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  static Status Ok() { return {}; }
  bool ok() const { return rep_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : rep_->code; }
  const std::string& message() const;
  // "not found: no file 'x'", or "ok".
  std::string ToString() const;
  // This status with "<context>: " put before its message; the code stays.
  Status WithContext(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

inline Status InvalidArgument(std::string m) {
  return {Code::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) {
  return {Code::kNotFound, std::move(m)};
}
inline Status AlreadyExists(std::string m) {
  return {Code::kAlreadyExists, std::move(m)};
}
inline Status FailedPrecondition(std::string m) {
  return {Code::kFailedPrecondition, std::move(m)};
}
inline Status OutOfRange(std::string m) {
  return {Code::kOutOfRange, std::move(m)};
}
inline Status DataLoss(std::string m) {
  return {Code::kDataLoss, std::move(m)};
}
inline Status Unimplemented(std::string m) {
  return {Code::kUnimplemented, std::move(m)};
}
inline Status ResourceExhausted(std::string m) {
  return {Code::kResourceExhausted, std::move(m)};
}
inline Status Cancelled(std::string m) {
  return {Code::kCancelled, std::move(m)};
}
inline Status DeadlineExceeded(std::string m) {
  return {Code::kDeadlineExceeded, std::move(m)};
}
inline Status Unavailable(std::string m) {
  return {Code::kUnavailable, std::move(m)};
}
inline Status Internal(std::string m) {
  return {Code::kInternal, std::move(m)};
}

// The exception that the public API throws.
class Error : public std::exception {
 public:
  explicit Error(Status status) : status_(std::move(status)) {}
  Error(Code code, std::string message) : status_(code, std::move(message)) {}
  Code code() const { return status_.code(); }
  const Status& status() const { return status_; }
  const char* what() const noexcept override {
    return status_.message().c_str();
  }

 private:
  Status status_;
};

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw Error(status);
}

// A T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : rep_(std::move(value)) {}         // NOLINT: implicit
  Result(Status status) : rep_(std::move(status)) {}  // NOLINT: implicit

  bool ok() const { return rep_.index() == 0; }
  Status status() const { return ok() ? Status::Ok() : std::get<Status>(rep_); }
  // Requires ok().
  T& operator*() & { return std::get<T>(rep_); }
  const T& operator*() const& { return std::get<T>(rep_); }
  // By value, so that nothing dangles in `for (auto& x : *Function())`.
  T operator*() && { return std::get<T>(std::move(rep_)); }
  T* operator->() { return &std::get<T>(rep_); }
  const T* operator->() const { return &std::get<T>(rep_); }
  // Returns the value, or throws Error.
  T ValueOrThrow() && {
    if (!ok()) throw Error(std::get<Status>(rep_));
    return std::get<T>(std::move(rep_));
  }

 private:
  std::variant<T, Status> rep_;
};

// Prints the condition and ends the process. Only for our own bugs, never for
// input.
[[noreturn]] void CheckFailed(const char* condition, const char* file,
                              int line);

}  // namespace sluice

#define SLUICE_CHECK(condition) \
  ((condition) ? (void)0        \
               : ::sluice::CheckFailed(#condition, __FILE__, __LINE__))

#define SLUICE_RETURN_IF_ERROR(expr)                                    \
  do {                                                                  \
    if (::sluice::Status sluice_status_ = (expr); !sluice_status_.ok()) \
      return sluice_status_;                                            \
  } while (false)

#define SLUICE_CONCAT_INNER_(a, b) a##b
#define SLUICE_CONCAT_(a, b) SLUICE_CONCAT_INNER_(a, b)
// SLUICE_ASSIGN_OR_RETURN(auto x, Function());
#define SLUICE_ASSIGN_OR_RETURN(lhs, expr) \
  SLUICE_ASSIGN_OR_RETURN_(SLUICE_CONCAT_(sluice_result_, __LINE__), lhs, expr)
#define SLUICE_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                             \
  if (!result.ok()) return result.status();         \
  lhs = *std::move(result)

#endif  // SLUICE_ENGINE_STATUS_H_
