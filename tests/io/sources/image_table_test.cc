// Lists of pictures in tables: numbers and names, headings, what is wrong.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "io/files/csv.h"
#include "io/sources/image_list.h"
#include "tests/support/error_text.h"
#include "tests/support/random.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::Random;
using testing::TemporaryFolder;
using Strings = std::vector<std::string>;

// The list of a table of these bytes.
ImageList Listed(const std::string& csv, const Strings& class_names = {}) {
  const TemporaryFolder folder;
  std::ofstream(folder / "Table.CSV", std::ios::binary) << csv;
  REQUIRE(IsImageTable(folder / "Table.CSV"));
  ImageList list = ListImagesOfTable(folder / "Table.CSV", class_names);
  CHECK(list.directory == folder.path());
  for (std::string& path : list.paths) {
    REQUIRE(path.starts_with(folder.path() + "/"));
    path.erase(0, folder.path().size() + 1);
  }
  return list;
}

TEST_CASE("which paths are tables") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a.csv");
  CHECK_FALSE(IsImageTable(folder / "a.csv"));
  CHECK(IsImageTable(folder / "b.csv"));
  CHECK(IsImageTable(".CsV"));
  CHECK_FALSE(IsImageTable("csv"));
  CHECK_FALSE(IsImageTable(folder / "a.csv/b"));
  CHECK_FALSE(IsImageTable(""));
  CHECK_THROWS_WITH_AS(ListImagesOfTable(folder / "none.csv"),
                       doctest::Contains("none.csv"), Error);
}

TEST_CASE("random tables of numbers or names, as they may be written") {
  Random random(4);
  const Strings words = {
      "cat", "Cat", "a dog", "ant, red", "\"bee\"", "é",     "日本", "2CV",
      "1.5", "-",   "x\ny",  "007a",     "0x1",     "1 000", "+1",   "none"};
  const Strings files = {"a.jpg",      "sub/b.png", "c d.jpg",   "e, f.jpg",
                         "\"g\".png",  "no ending", "日本.jpg",  "../up.jpg",
                         "two\nlines", " led.jpg",  "%20+&.png", "7",
                         "é/ü.jpg",    "-",         "#h.png",    "i.jpg "};
  for (int round = 0; round < 300; ++round) {
    const bool named = random.Chance(2);
    const std::string end = Strings{"\n", "\r\n", "\r"}[random.Between(0, 2)];
    std::string csv = random.Chance(3) ? "\xef\xbb\xbf" : "";
    const bool heading = random.Chance(2);
    if (heading) csv += Strings{"file,label", "\"F\",L"}[round % 2] + end;
    Strings want_files, labels;
    for (const std::string& file : files) {
      if (random.Chance(3)) continue;
      want_files.push_back(file);
      labels.push_back(named ? words[random.Between(0, 15)]
                             : std::to_string(random.Between(0, 30)));
      std::string label =
          CsvField(labels.back() + (random.Chance(3) ? " " : ""));
      if (!label.starts_with('"') && random.Chance(3))
        label = "\"" + label + "\"";
      csv += CsvField(file) + "," + label + end + (random.Chance(4) ? end : "");
    }
    if (want_files.empty()) continue;
    // The first file of a table of names that is no image's is not there.
    if (named && !heading && !want_files[0].ends_with("g")) continue;
    CAPTURE(csv);
    const ImageList list = Listed(csv);
    REQUIRE(list.paths == want_files);
    REQUIRE(list.heading.empty() == !heading);
    REQUIRE(list.labels.size() == labels.size());
    const std::set<std::string> sorted(labels.begin(), labels.end());
    if (named) {
      REQUIRE(list.class_names == Strings(sorted.begin(), sorted.end()));
      REQUIRE(list.classes == static_cast<int64_t>(sorted.size()));
    } else {
      REQUIRE(list.class_names.empty());
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      REQUIRE(labels[i] == (named ? list.class_names[list.labels[i]]
                                  : std::to_string(list.labels[i])));
    }
    // By the names of a training, in their order.
    Strings known = {"zebra"};
    known.insert(known.end(), sorted.rbegin(), sorted.rend());
    if (named) {
      const ImageList by_known = Listed(csv, known);
      REQUIRE(by_known.class_names == known);
      for (size_t i = 0; i < labels.size(); ++i) {
        REQUIRE(known[by_known.labels[i]] == labels[i]);
      }
    }
  }
}

TEST_CASE("headings, and first rows that are none") {
  CHECK(Listed("file,label\na.jpg,cat\n").heading == "file,label");
  CHECK(Listed("file,label\na.jpg,3\n").heading == "file,label");
  CHECK(Listed("a.jpg,cat").heading.empty());
  CHECK(Listed("a.jpg,cat").class_names == Strings{"cat"});
  CHECK(Listed("a.jpg,7").labels == std::vector<int64_t>{7});
  // A picture without an ending is no heading if it is there.
  const TemporaryFolder folder;
  std::ofstream(folder / "one") << "x";
  std::ofstream(folder / "t.csv") << "one,cat\ntwo,dog\n";
  CHECK(ListImagesOfTable(folder / "t.csv").paths.size() == 2);
  std::ofstream(folder / "t.csv") << "three,cat\ntwo,dog\n";
  CHECK(ListImagesOfTable(folder / "t.csv").heading == "three,cat");
}

// The images' numbers by their paths, or the error.
std::string NumbersOf(const std::function<ImageList()>& list) {
  try {
    const ImageList listed = list();
    std::string text;
    for (size_t i = 0; i < listed.paths.size(); ++i) {
      text += fmt::format("{} {}\n", listed.Relative(i), listed.labels[i]);
    }
    return text;
  } catch (const Error& error) {
    CHECK(error.code() == Code::kInvalidArgument);
    return error.what();
  }
}

TEST_CASE("a folder and a table of the same files number classes alike") {
  int several = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Strings words = {"b", "crane", "d", "maillot"};
    Strings trained;  // with names that several have, or none
    for (int64_t n = random.Between(1, 6); n > 0; --n) {
      trained.push_back(words[random.Between(0, 3)]);
    }
    const TemporaryFolder folder;
    std::string csv, want, wrong;
    for (const std::string& word : words) {
      if (random.Chance(2)) continue;
      std::filesystem::create_directory(folder / word);
      std::ofstream(folder / (word + "/1.png")) << "x";
      csv += fmt::format("{0}/1.png,{0}\n", word);
      const auto at = std::find(trained.begin(), trained.end(), word);
      want += fmt::format("{}/1.png {}\n", word, at - trained.begin());
      const auto count = std::count(at, trained.end(), word);
      if (count == 1 || !wrong.empty()) continue;
      wrong = count == 0 ? "training had no class of th"
                         : fmt::format(
                               "training had several classes of the "
                               "name '{}'; give a table of their",
                               word);
      several += count > 1 ? 1 : 0;
    }
    if (csv.empty()) continue;
    const std::string of_folder =
        NumbersOf([&] { return ListImages(folder.path(), trained); });
    const std::string table = folder / "table.csv";
    std::ofstream(table) << csv;
    const std::string of_table =
        NumbersOf([&] { return ListImagesOfTable(table, trained); });
    if (wrong.empty()) {
      CHECK(of_folder == want);
      CHECK(of_table == want);
    } else {
      CHECK(testing::Contains(of_folder, wrong));
      CHECK(testing::Contains(of_table, wrong));
    }
  }
  CHECK(several > 20);
}

TEST_CASE("what is wrong in a table is told by its line") {
  struct Case {
    const char *csv, *said;
  };
  for (const auto& [csv, said] : {
           Case{"a.jpg,cat\nb.jpg",
                "line 2: wanted FILE,LABEL with the name "
                "of a class or a label in 0..999999, got "
                "'b.jpg'"},
           Case{"a.jpg,cat\nb, c.jpg,dog",
                "line 2: wanted FILE,LABEL with the name of a class or a label "
                "in 0..999999, got 'b, c.jpg,dog'; a FILE with commas goes in "
                "quotes"},
           Case{"a.jpg,cat\n,dog", "line 2: wanted"},
           Case{"a.jpg,cat\nb.jpg, ", "line 2: wanted"},
           Case{"a.jpg,cat\nb.jpg,", "line 2: wanted"},
           Case{"a.jpg,1\nb.jpg,-1", "line 2: wanted"},
           Case{"a.jpg,1\nb.jpg,1000000", "line 2: wanted"},
           Case{"a.jpg,1\nb.jpg,2\nc.jpg,3x",
                "line 1: got the number '1', but the label of another row is "
                "a name; wanted either numbers or names"},
           // No heading: the name is that of an image.
           Case{"a.jpg,cat\nb.jpg,1", "line 2: got the number '1'"},
           Case{"a.jpg,cat\nb.jpg,dog\na.jpg,cat",
                "line 3: 'a.jpg' is in line 1 already"},
           Case{"s/a.jpg,1\ns/../s/./a.jpg,1", "is in line 1 already"},
           Case{"a.jpg,1\n/b.jpg,1", "line 2: '/b.jpg' begins at the root"},
           Case{"a.jpg,\"cat", "line 1: a quote is opened and never closed"},
           Case{"", "no images in"},
           Case{"file,label\n", "no images in"},
       }) {
    CAPTURE(csv);
    CHECK_THROWS_WITH_AS(Listed(csv), doctest::Contains(said), Error);
  }
  CHECK_THROWS_WITH_AS(
      Listed("a.jpg,cat\nb.jpg,bee\n", {"ant", "bee"}),
      doctest::Contains("line 1: training had no class of the name 'cat'"),
      Error);
  CHECK_THROWS_WITH_AS(Listed("a.jpg,2\n", {"ant", "bee"}),
                       doctest::Contains("has the label 2, training had 2"),
                       Error);
}

}  // namespace
}  // namespace sluice
