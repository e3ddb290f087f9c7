#include "models/train/hooks/keep_bad_examples.h"

#include <algorithm>
#include <string_view>

#include "engine/text/json.h"
#include "engine/text/json_object.h"
#include "io/files/file.h"
#include "io/files/file_pattern.h"
#include "io/files/schemes.h"
#include "io/files/without_query.h"

namespace sluice {
namespace {

constexpr char kMark = '\0';

// What messages have of the path before the names of files there: JoinPath adds
// the last "/" where there is none. "": none of it.
std::string PlaceOfPath(const std::string& path) {
  const std::string bare = WithoutQuery(path);
  // Of other file systems to ask for it costs a request.
  const bool pattern =
      SchemeOf(bare).empty()
          ? IsFilePattern(bare)
          : bare.find_first_of("*?[", bare.rfind('/')) != bare.npos;
  std::string place = pattern ? ParentDirectory(bare) : bare;
  if (place.ends_with('/')) place.pop_back();
  return place;
}

// Whether a path or a name may go on with it.
bool IsOfPath(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z') ||
         std::string_view("/._-").find(c) != std::string_view::npos ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Whether a path may begin there. Not behind every space: names have some.
bool MayBegin(std::string_view message, size_t at) {
  const std::string_view before = message.substr(0, at);
  return before.empty() || before.ends_with(": ") ||
         std::string_view("'\"(").find(before.back()) != before.npos;
}

// Whether the path stands there: as a whole, or as the folder of a longer one.
bool IsAt(std::string_view path, std::string_view message, size_t at) {
  const size_t end = at + path.size();
  return message.substr(at, path.size()) == path && MayBegin(message, at) &&
         (end == message.size() || message[end] == '/' ||
          !IsOfPath(message[end]));
}

}  // namespace

KeepBadExamples::KeepBadExamples(std::shared_ptr<BadExamples> bad,
                                 const TrainerSpec& spec, const RunContext& run)
    : bad_(std::move(bad)) {
  const auto add = [this](const std::string& path, const std::string& flag) {
    if (path.empty()) return;
    std::string place = PlaceOfPath(path);
    if (!place.empty()) places_.emplace_back(std::move(place), flag);
  };
  add(run.data_dir, "data-dir");
  for (const Flag& flag : spec.flags) {
    const auto given = run.flags.find(flag.name);
    const bool of_path =
        flag.kind == Flag::Kind::kPath || flag.kind == Flag::Kind::kData;
    if (!of_path || given == run.flags.end() ||
        std::find(flag.choices.begin(), flag.choices.end(), given->second) !=
            flag.choices.end()) {
      continue;
    }
    add(given->second, flag.name);
  }
  std::stable_sort(places_.begin(), places_.end(),
                   [](const auto& a, const auto& b) {
                     return a.first.size() > b.first.size();
                   });
}

std::string KeepBadExamples::WithNames(const std::string& message) const {
  std::string text;
  for (size_t at = 0; at < message.size();) {
    const auto place = std::find_if(
        places_.begin(), places_.end(),
        [&](const auto& one) { return IsAt(one.first, message, at); });
    if (place == places_.end()) {
      text += message[at++];
    } else {
      (text += kMark).append(place->second) += kMark;
      at += place->first.size();
    }
  }
  return text;
}

std::string KeepBadExamples::WithPaths(const std::string& message) const {
  std::string text;
  size_t at = 0;
  while (true) {
    const size_t begin = message.find(kMark, at);
    const size_t end =
        begin == message.npos ? begin : message.find(kMark, begin + 1);
    if (end == message.npos) return text.append(message, at);
    text.append(message, at, begin - at);
    const std::string flag = message.substr(begin + 1, end - begin - 1);
    const auto place =
        std::find_if(places_.begin(), places_.end(),
                     [&](const auto& one) { return one.second == flag; });
    text += place == places_.end() ? "--" + flag : place->first;
    at = end + 1;
  }
}

std::string KeepBadExamples::SaveState() const {
  // A checkpoint's header has room for so many bytes of JSON.
  constexpr size_t kMost = size_t{16} << 20;
  std::vector<std::string> messages;
  size_t bytes = 0;
  for (const std::string& message : bad_->messages()) {
    std::string named = WithNames(message);
    bytes += Json(named).LenientText().size() + 1;
    if (bytes > kMost) break;
    messages.push_back(std::move(named));
  }
  return Json(messages).LenientText();
}

void KeepBadExamples::RestoreState(const std::string& state) {
  std::vector<std::string> messages = ParseJsonStrings(state).ValueOrThrow();
  for (std::string& message : messages) message = WithPaths(message);
  bad_->Know(messages);
}

}  // namespace sluice
