// Reads the words of the text form (graph/text/text.h) one after another.
#ifndef SLUICE_GRAPH_TEXT_TEXT_SCANNER_H_
#define SLUICE_GRAPH_TEXT_TEXT_SCANNER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/status.h"

namespace sluice {

// A place in a text. Every function skips blanks and comments first, and line
// ends while a bracket is open. Errors are kInvalidArgument and begin
// "line 3, column 14: wanted ...".
class TextScanner {
 public:
  explicit TextScanner(std::string_view text) : text_(text) {}

  int line() const { return line_; }
  bool AtEnd();  // of the text
  // Skips line ends and blank lines.
  void SkipLines();
  // The end of a line or of the text.
  Status EndOfLine();

  // Brackets open and close: "(" "[" "{" suspend line ends.
  bool Accept(char c);
  Status Expect(char c);
  bool AcceptWord(std::string_view word);

  Result<std::string> Identifier(std::string_view what);
  Result<std::string> Name(std::string_view what);
  Result<std::string> Device();
  Result<std::string> String();
  Result<int64_t> Int();
  // As written ("1e-05", "-inf", "true"), for conversion to a dtype.
  Result<std::string> Literal();
  Result<DType> Type();
  Result<Shape> Dims();

  Status Fail(std::string_view message) const;

 private:
  void SkipBlanks();
  bool Peek(char c);
  // The longest run of letters, digits and characters of `also`.
  std::string_view Run(std::string_view also);
  Result<std::string> Word(std::string_view also, std::string_view what);

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  size_t line_begin_ = 0;
  int depth_ = 0;  // of open brackets
};

// Whether the text form can show the name without quotes.
bool IsPlainName(std::string_view name);
bool IsPlainDevice(std::string_view device);
std::string QuotedText(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_GRAPH_TEXT_TEXT_SCANNER_H_
