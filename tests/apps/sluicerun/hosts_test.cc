// Hosts that become others while a job runs, and who of it is where.
#include "apps/sluicerun/hosts.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"

namespace sluice::launcher {
namespace {

using sluice::testing::Contains;
using sluice::testing::TemporaryFolder;

// "a:2,b:0"
std::string TextOf(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : ",") + host.name + ":" +
            std::to_string(host.slots);
  }
  return text;
}

TEST_CASE("a hostfile that has changed is read again, and said what it lacks") {
  const TemporaryFolder folder;
  const std::string path = folder / "hosts";
  const auto write = [&](const std::string& text) {
    std::ofstream(path) << text;
  };
  std::vector<std::string> said;
  HostFile file(path, [&](const std::string& line) { said.push_back(line); });
  const auto changed = [&]() -> std::string {
    const auto hosts = file.Changed();
    return hosts ? TextOf(*hosts) : "no";
  };
  write("a slots=2\n");
  CHECK(changed() == "a:2");
  CHECK(changed() == "no");
  write("a slots=2\n");
  CHECK(changed() == "no");
  write("a slots=2\nb\n");
  CHECK(changed() == "a:2,b:1");
  CHECK(said.empty());
  // Half of it has been written.
  write("a slots=2\nb slo");
  for (int i = 0; i < 3; ++i) CHECK(changed() == "no");
  REQUIRE(said.size() == 1);
  CHECK(Contains(said[0], path));
  CHECK(Contains(said[0], "'b slo'"));
  CHECK(Contains(said[0], "the hosts stay those of before"));
  write("a slots=2\nb slots=4\n");
  CHECK(changed() == "a:2,b:4");
  // It is another file now: as kubelet and careful scripts do it.
  std::ofstream(folder / "next") << "b slots=4\nc\n";
  std::filesystem::rename(folder / "next", path);
  CHECK(changed() == "b:4,c:1");
  CHECK(said.size() == 1);
  // It is gone, and the same as before when it comes again.
  std::filesystem::remove(path);
  for (int i = 0; i < 3; ++i) CHECK(changed() == "no");
  REQUIRE(said.size() == 2);
  CHECK(Contains(said[1], "cannot be read"));
  write("b slots=4\nc\n");
  CHECK(changed() == "no");
  write("\n# nobody\n");
  for (int i = 0; i < 3; ++i) CHECK(changed() == "no");
  REQUIRE(said.size() == 3);
  CHECK(Contains(said[2], "lists no host"));
  write("a b=c\n");
  CHECK(changed() == "no");
  write("\n# nobody\n");
  CHECK(changed() == "no");
  CHECK(said.size() == 5);
  write("c\n");
  CHECK(changed() == "c:1");
  // A folder, or a pipe, which would be waited for.
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  CHECK(changed() == "no");
  CHECK(said.size() == 5);
}

TEST_CASE("a free slot is the first on a host that has one and answers") {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 0}, {"c", 3}};
  const auto first_free =
      [&](const std::vector<Seat>& taken, const std::set<size_t>& silent = {},
          int most = 4) { return FreeSeat(hosts, taken, silent, most); };
  const auto is = [](const std::optional<Seat>& seat, size_t host, int local,
                     int size) {
    return seat && seat->host == host && seat->local_rank == local &&
           seat->local_size == size;
  };
  CHECK(is(first_free({}), 0, 0, 2));
  CHECK(is(first_free({{0, 0, 2}}), 0, 1, 2));
  CHECK(is(first_free({{0, 1, 2}}), 0, 0, 2));
  CHECK(is(first_free({{0, 1, 2}, {0, 0, 2}}), 2, 0, 3));
  CHECK(is(first_free({{2, 0, 3}}, {0}), 2, 1, 3));
  CHECK(is(first_free({}, {0}, 1), 2, 0, 1));
  CHECK(!first_free({{2, 0, 1}}, {0}, 1));
  CHECK(!first_free({}, {0, 2}));
  // Of a host with fewer slots than it had.
  CHECK(is(first_free({{0, 5, 6}}), 0, 0, 2));
}

TEST_CASE("those that are seated one by one never share a slot") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Host> hosts(1 + random() % 4);
    int slots = 0;
    for (Host& host : hosts) {
      host.slots = static_cast<int>(random() % 4);
      slots += host.slots;
    }
    std::vector<Seat> taken;
    std::set<std::pair<size_t, int>> places;
    while (const auto seat = FreeSeat(hosts, taken, {}, 99)) {
      taken.push_back(*seat);
      CHECK(seat->local_rank < hosts[seat->host].slots);
      CHECK(places.insert({seat->host, seat->local_rank}).second);
      REQUIRE(static_cast<int>(taken.size()) <= slots);
    }
    CHECK(static_cast<int>(taken.size()) == slots);
  }
}

}  // namespace
}  // namespace sluice::launcher
