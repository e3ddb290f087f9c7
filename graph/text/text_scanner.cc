#include "graph/text/text_scanner.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/parse_number.h"

namespace sluice {
namespace {

constexpr std::string_view kNameMarks = "_./-";
constexpr std::string_view kDeviceMarks = "_./:-";

bool IsWordCharacter(char c, std::string_view also) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || also.find(c) != also.npos;
}

bool IsPlain(std::string_view text, std::string_view also) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return IsWordCharacter(c, also);
  });
}

// -1 for what is no hexadecimal digit.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool IsPlainName(std::string_view name) {
  return IsPlain(name, kNameMarks);
}
bool IsPlainDevice(std::string_view device) {
  return IsPlain(device, kDeviceMarks);
}

std::string QuotedText(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Status TextScanner::Fail(std::string_view message) const {
  return InvalidArgument(fmt::format("line {}, column {}: {}", line_,
                                     at_ - line_begin_ + 1, message));
}

void TextScanner::SkipBlanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n' && depth_ > 0) {
      ++at_;
      ++line_;
      line_begin_ = at_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

bool TextScanner::AtEnd() {
  SkipBlanks();
  return at_ == text_.size();
}

void TextScanner::SkipLines() {
  SkipBlanks();
  while (at_ < text_.size() && text_[at_] == '\n') {
    ++at_;
    ++line_;
    line_begin_ = at_;
    SkipBlanks();
  }
}

Status TextScanner::EndOfLine() {
  SkipBlanks();
  if (at_ == text_.size() || text_[at_] == '\n') return {};
  return Fail("wanted the end of the line");
}

bool TextScanner::Peek(char c) {
  SkipBlanks();
  return at_ < text_.size() && text_[at_] == c;
}

bool TextScanner::Accept(char c) {
  if (!Peek(c)) return false;
  ++at_;
  if (c == '(' || c == '[' || c == '{') ++depth_;
  if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
  return true;
}

Status TextScanner::Expect(char c) {
  return Accept(c) ? Status() : Fail(fmt::format("wanted '{}'", c));
}

bool TextScanner::AcceptWord(std::string_view word) {
  SkipBlanks();
  if (!text_.substr(at_).starts_with(word)) return false;
  const size_t end = at_ + word.size();
  if (end < text_.size() && IsWordCharacter(text_[end], kNameMarks) &&
      IsWordCharacter(word.back(), kNameMarks)) {
    return false;
  }
  at_ = end;
  return true;
}

std::string_view TextScanner::Run(std::string_view also) {
  SkipBlanks();
  size_t end = at_;
  while (end < text_.size() && IsWordCharacter(text_[end], also)) ++end;
  const std::string_view run = text_.substr(at_, end - at_);
  at_ = end;
  return run;
}

Result<std::string> TextScanner::Word(std::string_view also,
                                      std::string_view what) {
  const std::string_view word = Run(also);
  if (word.empty()) return Fail(fmt::format("wanted {}", what));
  return std::string(word);
}

Result<std::string> TextScanner::Identifier(std::string_view what) {
  return Word("_", what);
}

Result<std::string> TextScanner::Name(std::string_view what) {
  return Peek('"') ? String() : Word(kNameMarks, what);
}

Result<std::string> TextScanner::Device() {
  return Peek('"') ? String() : Word(kDeviceMarks, "a device");
}

Result<std::string> TextScanner::Literal() {
  return Word("_.+-", "a number");
}

Result<std::string> TextScanner::String() {
  if (!Peek('"')) return Fail("wanted a string in quotes");
  std::string out;
  for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return out;
    }
    if (c != '\\') {
      out += c;
      continue;
    }
    const char escaped = ++at_ < text_.size() ? text_[at_] : '\0';
    if (escaped == '"' || escaped == '\\') {
      out += escaped;
    } else if (escaped == 'n') {
      out += '\n';
    } else if (escaped == 't') {
      out += '\t';
    } else if (escaped == 'x' && at_ + 2 < text_.size() &&
               HexDigit(text_[at_ + 1]) >= 0 && HexDigit(text_[at_ + 2]) >= 0) {
      out += static_cast<char>(HexDigit(text_[at_ + 1]) * 16 +
                               HexDigit(text_[at_ + 2]));
      at_ += 2;
    } else {
      return Fail("wanted one of \\\" \\\\ \\n \\t \\xHH");
    }
  }
  return Fail("the string does not end in this line");
}

Result<int64_t> TextScanner::Int() {
  SLUICE_ASSIGN_OR_RETURN(const std::string digits, Word("+-", "an integer"));
  if (const auto value = ParseWhole<int64_t>(digits)) return *value;
  return Fail(fmt::format("wanted an integer, got '{}'", digits));
}

Result<DType> TextScanner::Type() {
  SLUICE_ASSIGN_OR_RETURN(const std::string name, Word("_", "a dtype"));
  Result<DType> dtype = ParseDType(name);
  if (!dtype.ok()) return Fail(dtype.status().message());
  return dtype;
}

Result<Shape> TextScanner::Dims() {
  Shape shape;
  SLUICE_RETURN_IF_ERROR(Expect('['));
  if (Accept(']')) return shape;
  do {
    int64_t d = kUnknown;
    if (!Accept('?')) {
      SLUICE_ASSIGN_OR_RETURN(d, Int());
      if (d < 0) return Fail("a dimension is negative");
    }
    if (shape.rank() == Shape::kMaxRank) {
      return Fail(fmt::format("more than {} dimensions", Shape::kMaxRank));
    }
    shape.push_back(d);
  } while (Accept(','));
  SLUICE_RETURN_IF_ERROR(Expect(']'));
  return shape;
}

}  // namespace sluice
