#include "apps/sluicerun/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "engine/parse_number.h"
#include "engine/status.h"

namespace sluice::launcher {
namespace {

constexpr int kMostSlots = 4096;

[[noreturn]] void Fail(const std::string& message) {
  throw Error(Code::kInvalidArgument, message);
}

int ParseSlots(std::string_view text, std::string_view of) {
  const auto slots = ParseWhole<int>(text);
  if (!slots || *slots < 1 || *slots > kMostSlots) {
    Fail(fmt::format("'{}': slots are a number from 1 to {}", of, kMostSlots));
  }
  return *slots;
}

// A name that began with '-' would be an option of ssh's.
std::string CheckName(std::string_view name, std::string_view of) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:@%";
  if (name.empty() || name[0] == '-' ||
      name.find_first_not_of(kPlain) != std::string_view::npos) {
    Fail(fmt::format("'{}' names no host", of));
  }
  return std::string(name);
}

void AddTo(std::vector<Host>& hosts, std::string name, int slots) {
  const auto known =
      std::find_if(hosts.begin(), hosts.end(),
                   [&](const Host& host) { return host.name == name; });
  if (known == hosts.end()) {
    hosts.push_back({std::move(name), slots});
  } else {
    known->slots = std::min(known->slots + slots, kMostSlots);
  }
}

Host ParseHost(std::string_view text) {
  std::string_view name = text, slots;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) Fail(fmt::format("'{}' has no ]", text));
    name = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') Fail(fmt::format("'{}'?", text));
    if (!rest.empty()) slots = rest.substr(1);
    if (!rest.empty() && slots.empty()) ParseSlots("", text);
  } else if (const size_t colon = text.find(':');
             colon != std::string_view::npos) {
    name = text.substr(0, colon);
    slots = text.substr(colon + 1);
    if (slots.empty()) ParseSlots("", text);
  }
  return {CheckName(name, text), slots.empty() ? 1 : ParseSlots(slots, text)};
}

// The next word, which '=' is by itself; moves `line` behind it.
std::string_view NextWord(std::string_view& line) {
  constexpr std::string_view kBlanks = " \t\r", kEnds = " \t\r=";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const size_t end = line.starts_with('=')
                         ? 1
                         : std::min(line.find_first_of(kEnds), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

void ParseLine(std::string_view line, std::vector<Host>& hosts) {
  const std::string_view whole = line;
  line = line.substr(0, line.find('#'));
  const std::string_view name = NextWord(line);
  if (name.empty()) return;
  int slots = 1;
  for (std::string_view key = NextWord(line); !key.empty();
       key = NextWord(line)) {
    const bool known =
        key == "slots" || key == "max_slots" || key == "max-slots";
    if (!known || NextWord(line) != "=") {
      Fail(
          fmt::format("hostfile: '{}': '{}' is neither slots=N nor "
                      "max_slots=N",
                      whole, key));
    }
    const int number = ParseSlots(NextWord(line), whole);
    if (key == "slots") slots = number;
  }
  AddTo(hosts, CheckName(name, whole), slots);
}

std::string TextOfFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw Error(Code::kNotFound, fmt::format("'{}' cannot be read", path));
  }
  return text.str();
}

}  // namespace

std::vector<Host> ParseHosts(std::string_view text) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    Host host = ParseHost(text.substr(begin, end - begin));
    AddTo(hosts, std::move(host.name), host.slots);
    begin = end + 1;
  }
  return hosts;
}

std::vector<Host> ParseHostFile(std::string_view text) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    ParseLine(text.substr(begin, end - begin), hosts);
    begin = end + 1;
  }
  if (hosts.empty()) Fail("the hostfile lists no host");
  return hosts;
}

std::vector<Host> ReadHostFile(const std::string& path) {
  return ParseHostFile(TextOfFile(path));
}

std::optional<std::vector<Host>> HostFile::Changed() {
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path_, error);
  if (exists(status) && !is_regular_file(status)) return std::nullopt;
  try {
    std::string text = TextOfFile(path_);
    if (text == text_) return std::nullopt;
    text_ = std::move(text);
    std::vector<Host> hosts = ParseHostFile(*text_);
    trouble_.clear();
    return hosts;
  } catch (const Error& failure) {
    const std::string trouble = fmt::format(
        "{}: {}; the hosts stay those of before", path_, failure.what());
    if (trouble != std::exchange(trouble_, trouble)) say_(trouble);
  }
  return std::nullopt;
}

std::vector<Seat> SeatRanks(const std::vector<Host>& hosts, int size) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (size == 0) size = slots;
  if (size > slots) {
    Fail(fmt::format("{} processes, but the hosts have {} slots", size, slots));
  }
  std::vector<Seat> seats;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const int left = size - static_cast<int>(seats.size());
    const int here = std::min(hosts[i].slots, left);
    for (int k = 0; k < here; ++k) seats.push_back({i, k, here});
  }
  return seats;
}

std::optional<Seat> FreeSeat(const std::vector<Host>& hosts,
                             const std::vector<Seat>& taken,
                             const std::set<size_t>& silent, int most) {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (silent.contains(i)) continue;
    const int slots = std::min(hosts[i].slots, most);
    for (int local = 0; local < slots; ++local) {
      const bool free =
          std::none_of(taken.begin(), taken.end(), [&](const Seat& seat) {
            return seat.host == i && seat.local_rank == local;
          });
      if (free) return Seat{i, local, slots};
    }
  }
  return std::nullopt;
}

}  // namespace sluice::launcher
