// Characters that mean something in XML and HTML.
#ifndef SLUICE_ENGINE_TEXT_MARKUP_H_
#define SLUICE_ENGINE_TEXT_MARKUP_H_

#include <string_view>

namespace sluice {

// What stands for a character in an element or in an attribute between double
// quotes: "&amp;"; "" for those that stand for themselves in both.
inline std::string_view EntityOf(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return "";
  }
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_TEXT_MARKUP_H_
