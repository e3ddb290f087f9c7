#include "io/remote/s3/profiles.h"

#include <cstddef>
#include <utility>

#include "io/files/open_files.h"
#include "io/remote/http/ascii.h"

namespace sluice::remote {

namespace {

// Without its last line's end; the rest of `text` is behind it.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

class IniParser {
 public:
  // What is wrong with the line; empty where nothing is.
  std::string_view Line(std::string_view line) {
    const std::string_view content = Stripped(line);
    if (content.empty()) {
      if (value_ != nullptr) *value_ += '\n';
      return {};
    }
    if (content[0] == '#' || content[0] == ';') return {};
    const size_t indent = line.find_first_not_of(kSpaces);
    if (value_ != nullptr && indent > indent_) {
      *value_ += '\n';
      *value_ += content;
      return {};
    }
    indent_ = indent;
    const size_t bracket = content.rfind(']');
    if (content[0] == '[' && bracket != std::string_view::npos && bracket > 1) {
      return Section(content.substr(1, bracket - 1));
    }
    return Option(content);
  }

  // The empty lines behind a value were none of it.
  Sections Take() {
    for (auto& [name, options] : sections_) {
      for (auto& [option, value] : options) {
        value.erase(value.find_last_not_of(kSpaces) + 1);
      }
    }
    return std::move(sections_);
  }

 private:
  std::string_view Section(std::string_view name) {
    const auto [at, fresh] = sections_.try_emplace(std::string(name));
    section_ = &at->second;
    value_ = nullptr;
    return fresh ? "" : "the section was there before";
  }

  std::string_view Option(std::string_view content) {
    if (section_ == nullptr) return "no [section] is before it";
    const size_t delimiter = content.find_first_of("=:");
    if (delimiter == std::string_view::npos || delimiter == 0) {
      return "it is neither [section] nor name = value";
    }
    const auto [at, fresh] =
        section_->try_emplace(LowerCase(Stripped(content.substr(0, delimiter))),
                              Stripped(content.substr(delimiter + 1)));
    value_ = &at->second;
    return fresh ? "" : "the section has this name before";
  }

  Sections sections_;
  Options* section_ = nullptr;    // which we are in
  std::string* value_ = nullptr;  // which the next line may go on with
  size_t indent_ = 0;             // of the line that began the value
};

}  // namespace

Result<Sections> ParseIni(std::string_view text, const std::string& path) {
  IniParser parser;
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view wrong = parser.Line(TakeLine(&text));
    if (!wrong.empty()) {
      return InvalidArgument("'" + Escaped(path) + "', line " +
                             std::to_string(line) + ": " + std::string(wrong));
    }
  }
  return parser.Take();
}

Sections SectionsOf(const Sections& sections, std::string_view kind) {
  Sections named;
  for (const auto& [header, options] : sections) {
    if (!header.starts_with(kind)) continue;
    const std::string_view rest = std::string_view(header).substr(kind.size());
    std::string_view name = Stripped(rest);
    if (name.empty() || name.data() == rest.data()) continue;
    if (name.size() > 1 && (name[0] == '"' || name[0] == '\'') &&
        name.back() == name[0]) {
      name = name.substr(1, name.size() - 2);
    } else if (name.find_first_of(kSpaces) != std::string_view::npos) {
      continue;
    }
    named[std::string(name)] = options;
  }
  return named;
}

Options NestedOptions(std::string_view value) {
  Options options;
  if (!value.starts_with('\n')) return options;
  while (!value.empty()) {
    const std::string_view line = TakeLine(&value);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    options[std::string(Stripped(line.substr(0, equals)))] =
        Stripped(line.substr(equals + 1));
  }
  return options;
}

}  // namespace sluice::remote
