#include "engine/status.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kFailedPrecondition:
      return "failed precondition";
    case Code::kOutOfRange:
      return "out of range";
    case Code::kDataLoss:
      return "data loss";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

Status::Status(Code code, std::string message)
    : rep_(std::make_unique<Rep>(Rep{code, std::move(message)})) {}

Status::Status(const Status& other)
    : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) {
    rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  }
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return ok() ? empty : rep_->message;
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(CodeName(rep_->code)) + ": " + rep_->message;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return {};
  return {rep_->code, std::string(context) + ": " + rep_->message};
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace sluice
