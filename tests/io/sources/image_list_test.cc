// Lists of pictures: folders of classes, labels.csv, splits.
#include "io/sources/image_list.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/error_text.h"
#include "tests/support/random.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::TemporaryFolder;

TEST_CASE("a list is split by its paths alone, whatever else comes or goes") {
  const auto listed = [](const std::string& directory, int n) {
    ImageList list;
    list.directory = directory;
    list.classes = 10;
    for (int i = 0; i < n; ++i) {
      list.Add(fmt::format("{}/c{}/{:05}.jpg", directory, i % 10, i), i % 10);
    }
    return list;
  };
  const auto names = [](const ImageList& list) {
    std::set<std::string> relative;
    for (size_t i = 0; i < list.paths.size(); ++i) {
      relative.emplace(list.Relative(i));
    }
    return relative;
  };
  const ImageList all = listed("/a", 10000);
  for (const double fraction : {0.0, 0.01, 0.1, 0.5, 0.9}) {
    CAPTURE(fraction);
    const SplitList split = SplitImages(all, fraction);
    const auto kept = static_cast<double>(split.validation.paths.size());
    const double deviation = std::sqrt(10000 * fraction * (1 - fraction));
    CHECK(std::abs(kept - 10000 * fraction) <= 4 * deviation);
    CHECK(split.training.paths.size() + split.validation.paths.size() == 10000);
    CHECK(split.training.classes == 10);
    // Of every class about as many.
    std::map<int64_t, int> by_class;
    for (const int64_t label : split.validation.labels) ++by_class[label];
    for (const auto& [label, count] : by_class) {
      CHECK(std::abs(count - 1000 * fraction) <= 1.5 * deviation);
    }
    // Elsewhere, and with fewer beside it, each is on the same side.
    const std::set<std::string> before = names(split.validation);
    for (const auto& name :
         names(SplitImages(listed("/b/c/", 700), fraction).validation)) {
      CHECK(before.contains(name));
    }
    // Larger parts contain smaller ones.
    const auto more = names(SplitImages(all, fraction + 0.05).validation);
    CHECK(
        std::includes(more.begin(), more.end(), before.begin(), before.end()));
  }
  CHECK(IdentityOf(all) == IdentityOf(listed("/elsewhere/", 10000)));
  CHECK(IdentityOf(all) != IdentityOf(listed("/a", 9999)));
  const SplitList parts = SplitImages(all, 0.1);
  CHECK(IdentityOf(parts.training) == IdentityOf(all) + "-but-0.1");
  CHECK(IdentityOf(parts.validation) == IdentityOf(all) + "-of-0.1");
  CHECK(IdentityOf(SplitImages(all, 0).training) == IdentityOf(all));
  ImageList other = all;
  other.labels[5] = 3;
  CHECK(IdentityOf(all) != IdentityOf(other));
}

TEST_CASE("a folder of classes and a folder with labels.csv are listed") {
  TemporaryFolder folder;
  for (const char* path :
       {"b/2.PNG", "b/1.jpg", "b/._1.jpg", "a/x.jpeg", "a/._a.jpg",
        "a/notes.txt", ".empty/readme", "__MACOSX/._a.jpg", "top.jpg"}) {
    const std::filesystem::path file = folder / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << "x";
  }
  const ImageList classes = ListImages(folder.path());
  CHECK(classes.paths == std::vector<std::string>{folder / "a/x.jpeg",
                                                  folder / "b/1.jpg",
                                                  folder / "b/2.PNG"});
  CHECK(classes.labels == std::vector<int64_t>{0, 1, 1});
  CHECK(classes.class_names == std::vector<std::string>{"a", "b"});
  // By another list of names.
  const ImageList known = ListImages(folder.path(), {"z", "b", "a"});
  CHECK(known.labels == std::vector<int64_t>{2, 1, 1});
  CHECK(known.classes == 3);
  CHECK(ClassesWithoutImages(known) == std::vector<std::string>{"z"});
  CHECK(ClassesWithoutImages(classes).empty());
  CHECK_THROWS_WITH_AS(ListImages(folder.path(), {"b", "c"}),
                       doctest::Contains("no class of that name, only b, c"),
                       Error);
  // A name that several have is none of any, unless nothing is of it.
  CHECK(ListImages(folder.path(), {"z", "b", "a", "z"}).labels == known.labels);
  CHECK_THROWS_WITH_AS(
      ListImages(folder.path(), {"b", "a", "b"}),
      doctest::Contains((folder / "b" + "': training had several").c_str()),
      Error);
  const Example second = [&] {
    Iterator examples = Indices(classes).MakeIterator();
    Example example;
    for (int i = 0; i < 2; ++i) examples.Next(&example).ValueOrThrow();
    return example;
  }();
  CHECK(second["index"].IntAt(0) == 1);
  CHECK(second["label"].IntAt(0) == 1);

  std::ofstream(folder / "labels.csv") << "file,label\r\ntop.jpg,7\n\n";
  const ImageList labelled = ListImages(folder.path());
  CHECK(labelled.paths == std::vector<std::string>{folder / "top.jpg"});
  CHECK(labelled.labels == std::vector<int64_t>{7});
  CHECK(labelled.classes == 8);
  CHECK(labelled.heading == "file,label");
  CHECK(classes.heading.empty());

  for (const char* line : {"top.jpg", "top.jpg,", "top.jpg,-1", "top.jpg,1x",
                           ",3", "top.jpg,99999999"}) {
    CAPTURE(line);
    std::ofstream(folder / "labels.csv") << "file,label\n" << line << "\n";
    CHECK_THROWS_WITH_AS(ListImages(folder.path()), doctest::Contains("line 2"),
                         Error);
  }
  for (const char* none : {"file,label\n", "file,label", "\n\n", ""}) {
    std::ofstream(folder / "labels.csv") << none;
    CHECK_THROWS_WITH_AS(ListImages(folder.path()),
                         doctest::Contains("no images in"), Error);
  }
  CHECK_THROWS_AS(ListImages(folder / "none"), Error);
}

TEST_CASE("a class's folder without images is refused, not passed over") {
  // What there may be in a folder, and what the error says of it; none where it
  // is a class.
  const std::vector<std::pair<std::vector<std::string>, std::string>> kinds = {
      {{"1.png"}, ""},
      {{"1.JPEG", "notes.txt", "sub/2.png"}, ""},
      {{}, "empty"},
      {{"1.bmp"}, "only 1.bmp"},
      {{"sub/1.png"}, "only sub"},
      {{"._1.png", "b.gif"}, "only ._1.png, b.gif"}};
  const std::vector<std::string> passed_over = {".ipynb_checkpoints",
                                                "lost+found", "__MACOSX"};
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    testing::Random random(seed);
    const TemporaryFolder folder;
    std::vector<std::string> classes, all;
    std::string error, first_empty;
    const auto make = [&](const std::string& name, size_t kind) {
      std::filesystem::create_directories(folder / name);
      for (const std::string& file : kinds[kind].first) {
        const std::filesystem::path path = folder / (name + "/" + file);
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << "x";
      }
    };
    for (const char* name : {"a", "b", "c", "d"}) {
      const auto kind =
          static_cast<size_t>(random.Chance(2) ? 0 : random.Between(0, 5));
      make(name, kind);
      const std::string& fault = kinds[kind].second;
      all.emplace_back(name);
      if (fault.empty()) {
        classes.emplace_back(name);
      } else if (error.empty()) {
        error = fmt::format(
            "'{}': a class's folder without JPEG and PNG files "
            "in it, {};",
            folder / name, fault);
      }
      if (fault == "empty") first_empty = name;
    }
    for (const std::string& name : passed_over) {
      if (random.Chance(2)) make(name, random.Between(0, 5));
    }
    std::ofstream(folder / "readme.txt") << "x";
    CAPTURE(error);
    if (error.empty()) {
      CHECK(ListImages(folder.path()).class_names == classes);
    } else {
      CHECK_THROWS_WITH_AS(ListImages(folder.path()),
                           doctest::Contains(error.c_str()), Error);
    }
    // One that is known may be empty; one that is named is passed over.
    if (first_empty.empty()) continue;
    const std::string empty = fmt::format("'{}'", folder / first_empty);
    for (const bool known : {true, false}) {
      const std::string text = testing::ErrorOf([&] {
        known ? ListImages(folder.path(), all)
              : ListImages(folder.path(), {}, first_empty);
      });
      CAPTURE(text);
      CHECK(text.find(empty) == std::string::npos);
    }
  }
}

TEST_CASE("a class's folder that is not to be had is refused, too") {
  const TemporaryFolder folder;
  for (const char* name : {"ant", "bee"}) {
    std::filesystem::create_directory(folder / name);
    std::ofstream(folder / (name + std::string("/1.png"))) << "x";
  }
  const std::string link = folder / "cat";
  for (const std::string& to : {folder / "away", link}) {  // which is a loop
    CAPTURE(to);
    std::filesystem::create_directory_symlink(to, link);
    for (const std::vector<std::string>& names :
         {std::vector<std::string>{}, {"ant", "bee", "cat"}}) {
      CHECK_THROWS_WITH_AS(ListImages(folder.path(), names),
                           doctest::Contains("cannot be looked into"), Error);
    }
    std::filesystem::remove(link);
  }
  // As hidden folders are, what is none is passed over.
  std::filesystem::create_directory_symlink(folder / "away", folder / ".cat");
  CHECK(ListImages(folder.path()).classes == 2);
}

// The list of a folder with this labels.csv, and the files in it.
ImageList Labelled(const std::string& csv) {
  const TemporaryFolder folder;
  std::ofstream(folder / "labels.csv", std::ios::binary) << csv;
  return ListImages(folder.path());
}

std::vector<std::string> Files(const ImageList& list) {
  std::vector<std::string> files;
  for (size_t i = 0; i < list.paths.size(); ++i) {
    files.emplace_back(list.Relative(i));
  }
  return files;
}

TEST_CASE("the first row of labels.csv is a picture or a heading") {
  const std::vector<std::string> both = {"b.jpg", "a.jpg"};
  for (const std::string csv :
       {"b.jpg,3\na.jpg,0\n", "\n\r\nb.jpg, 3 \n\na.jpg,\t0",
        "\xef\xbb\xbf\"b.jpg\",03\ra.jpg,\"0\"\r"}) {
    CAPTURE(csv);
    const ImageList list = Labelled(csv);
    CHECK(Files(list) == both);
    CHECK(list.labels == std::vector<int64_t>{3, 0});
    CHECK(list.heading.empty());
  }
  for (const std::string heading :
       {"file,label", "\"File\",\"La\"\"bel\"", "a.jpg,1.5", "a.jpg,1 2",
        "a.jpg,", ",", "\"two\nlines\",-"}) {
    CAPTURE(heading);
    const ImageList list = Labelled(heading + "\r\nb.jpg,3\r\na.jpg,0\r\n");
    CHECK(Files(list) == both);
    CHECK(list.heading == heading);
    CHECK(SplitImages(list, 0.5).training.heading == heading);
    CHECK(SplitImages(list, 0.5).validation.heading == heading);
  }
}

TEST_CASE("names in labels.csv may be quoted") {
  const ImageList list = Labelled(
      "\"a, b.jpg\",1\n"
      "\"7\"\" disk.png\",\"2\"\n"
      "\"sub/line\nend.jpg\",0\n"
      "plain name.jpg,4\n");
  CHECK(Files(list) == std::vector<std::string>{"a, b.jpg", "7\" disk.png",
                                                "sub/line\nend.jpg",
                                                "plain name.jpg"});
  CHECK(list.labels == std::vector<int64_t>{1, 2, 0, 4});
  CHECK(list.classes == 5);
}

TEST_CASE("slashes behind a folder change nothing of its list") {
  for (const bool labelled : {false, true}) {
    CAPTURE(labelled);
    const TemporaryFolder folder;
    std::vector<std::string> names;
    std::string csv;
    for (int i = 0; i < 40; ++i) {
      names.push_back(fmt::format("{}/{:02}.jpg", i < 20 ? "a" : "b", i));
      csv += fmt::format("{},{}\n", names.back(), i / 20);
      const std::filesystem::path file = folder / names.back();
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << std::string(static_cast<size_t>(i), 'x');
    }
    if (labelled) std::ofstream(folder / "labels.csv") << csv;
    const ImageList plain = ListImages(folder.path());
    const SplitList parts = SplitImages(plain, 0.5);
    for (const char* end : {"", "/", "//", "///"}) {
      CAPTURE(end);
      const ImageList list = ListImages(folder.path() + end);
      CHECK(Files(list) == names);
      CHECK(list.labels == plain.labels);
      for (const std::string& path : list.paths) {
        CHECK(std::filesystem::is_regular_file(path));
      }
      CHECK(IdentityOf(list) == IdentityOf(plain));
      const SplitList split = SplitImages(list, 0.5);
      CHECK(Files(split.training) == Files(parts.training));
      CHECK(Files(split.validation) == Files(parts.validation));
      if (!labelled) continue;
      const ImageList table =
          ListImagesOfTable(folder.path() + end + "/labels.csv");
      CHECK(Files(table) == names);
      CHECK(IdentityOf(table) == IdentityOf(plain));
    }
  }
}

TEST_CASE("bad rows of labels.csv are told by their lines") {
  const std::string good = "file,label\n\n\"two\nlines.jpg\",0\n";
  const std::vector<std::pair<std::string, const char*>> bad = {
      {"a, b.jpg,1",
       "line 5: wanted FILE,LABEL with a label in 0..999999, got "
       "'a, b.jpg,1'; a FILE with commas goes in quotes"},
      {"a.jpg;1",
       "line 5: wanted FILE,LABEL with a label in 0..999999, got "
       "'a.jpg;1'"},
      {"\"a\nb.jpg\",x", "got '\"a...'"},
      {"a.jpg,1000000", "line 5: wanted"},
      {"a.jpg,99999999999999999999", "line 5: wanted"},
      {"a.jpg,label", "line 5: wanted"},
      {"\"two\nlines.jpg\",0", "line 5: 'two...' is in line 3 already"},
      {"a.jpg,1\nb.jpg,1\n\"a.jpg\",2", "line 7: 'a.jpg' is in line 5 already"},
      {"a.jpg,1\n./a.jpg,2", "line 6: './a.jpg' is in line 5 already"},
      {"a.jpg,1\n/a.jpg,2", "line 6: '/a.jpg' is in line 5 already"},
      {"\"a.jpg,1", "labels.csv', line 5: a quote is opened and never closed"},
      {"a\"b\".jpg,1", "labels.csv', line 5: a quote in the middle"}};
  for (const auto& [row, message] : bad) {
    CAPTURE(row);
    CHECK_THROWS_WITH_AS(Labelled(good + row + "\nz.jpg,0\n"),
                         doctest::Contains(message), Error);
  }
  // Numbers that are no labels are no headings either.
  for (const char* first : {"a.jpg,-1", "a.jpg,1000000", ",3", "a.jpg",
                            "a.jpg,-99999999999999999999"}) {
    CAPTURE(first);
    CHECK_THROWS_WITH_AS(Labelled(fmt::format("{}\nb.jpg,0\n", first)),
                         doctest::Contains("line 1: wanted"), Error);
  }
  try {
    Labelled("\"a\nb.jpg\",1,2");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.status().code() == Code::kDataLoss);
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace
}  // namespace sluice
