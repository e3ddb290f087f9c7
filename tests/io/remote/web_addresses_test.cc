// Files at web addresses with queries: their names end where these begin, and
// no message shows them, since they may be signatures.
#ifdef SLUICE_HAVE_CURL
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoints/pth.h"
#include "io/checkpoints/safetensors.h"
#include "io/files/csv.h"
#include "io/files/line_stream.h"
#include "io/files/record.h"
#include "io/images/image.h"
#include "io/records/csv_dataset.h"
#include "io/records/record_files.h"
#include "io/records/record_stream.h"
#include "io/records/safetensors_dataset.h"
#include "io/records/tar_files.h"
#include "io/remote/register.h"
#include "io/sources/cifar.h"
#include "io/sources/idx.h"
#include "io/sources/image_list.h"
#include "tests/support/compressed.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/web_page.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;
using testing::ServedPage;
using testing::WebFixture;

void Serve(WebFixture& web, const std::string& bytes) {
  web.Change([&](ServedPage& page) { page.body = bytes; });
}

TEST_CASE("web: records at an address with a query need no index") {
  WebFixture web(0);
  const std::vector<std::string> payloads = {"one", "", std::string(700, '3'),
                                             "four"};
  std::string bytes;
  for (const std::string& payload : payloads) AppendRecord(payload, &bytes);
  Serve(web, bytes);
  for (const char* address :
       {"/page?secret=hush", "/page?", "/page#part", "/page?a=/b#c"}) {
    CAPTURE(address);
    const auto opened = RecordFiles::Open({web.Url(address)}, 1, web.files);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    REQUIRE((*opened)->size() == 4);
    for (size_t i = 0; i < payloads.size(); ++i) {
      CHECK(*(*opened)->Read(static_cast<int64_t>(i)) == payloads[i]);
    }
  }
}

TEST_CASE("web: what is called a TSV before its query has tabs") {
  RegisterRemoteFiles();
  WebFixture web(0);
  const auto read = [&](const std::string& address) {
    return datasets::Csv({web.Url(address)},
                         {.columns = {{.name = "a", .dtype = DType::kInt64},
                                      {.name = "b", .dtype = DType::kInt64}}})
        .MakeIterator();
  };
  const auto check = [](Iterator rows) {
    Example row;
    REQUIRE(rows.Next(&row).ValueOrThrow());
    CHECK(row["a"].IntAt(0) == 1);
    CHECK(row["b"].IntAt(0) == 2);
    CHECK(!rows.Next(&row).ValueOrThrow());
  };
  Serve(web, "a\tb\n1\t2\n");
  for (const char* address : {"/t.tsv", "/t.tsv?secret=hush", "/t.tab#x",
                              "/t.tsv.gz?a=b.csv", "/t.tsv?"}) {
    CAPTURE(address);
    check(read(address));
  }
  Serve(web, "a,b\n1,2\n");
  for (const char* address :
       {"/t.csv", "/t.csv?secret=hush", "/t?name=/t.tsv", "/t.csv#.tab"}) {
    CAPTURE(address);
    check(read(address));
  }
}

TEST_CASE("web: a table of images may have a query") {
  RegisterRemoteFiles();
  WebFixture web(0);
  Serve(web, "a.jpg,0\nsub/b.png,1\n");
  const std::string table = web.Url("/dir/table.csv?secret=/hush");
  REQUIRE(IsImageTable(table));
  CHECK(!IsImageTable(web.Url("/dir/table?a=/b.csv")));
  const ImageList list = ListImagesOfTable(table);
  CHECK(list.paths == std::vector<std::string>{web.Url("/dir/a.jpg"),
                                               web.Url("/dir/sub/b.png")});
  CHECK(list.Relative(1) == "sub/b.png");
}

TEST_CASE("web: what readers say of files shows no query") {
  RegisterRemoteFiles();
  WebFixture web(5000);
  const std::string url = web.Url("/page?X-Amz-Signature=hush#hush");
  std::vector<std::string> messages;
  const auto add = [&](const Status& error) {
    CAPTURE(messages.size());
    CHECK(!error.ok());
    messages.push_back(error.message());
  };
  const auto caught = [&](const auto& read) {
    messages.push_back(ErrorOf(read));
  };
  const auto csv = [&](const CsvOptions& options) {
    Iterator rows = datasets::Csv({url}, options).MakeIterator();
    Example row;
    while (rows.Next(&row).ValueOrThrow()) {
    }
  };
  // No ranges.
  web.Change([](ServedPage& page) { page.ranges = false; });
  add(web.files.OpenRead(url).status());
  web.Change([](ServedPage& page) { page.ranges = true; });
  // Digits are nothing of all these.
  add(RecordFiles::Open({url}, 1, web.files).status());
  add(TarFiles::Open({url}, TarLabels::kIgnored, 1, web.files).status());
  add(ReadImage(url, web.files).status());
  add(DecodeResizeAndCrop("", url, 8, 8).status());
  add(ReadPth(url, web.files).status());
  add(ReadIdx(url, web.files).status());
  add(ReadCifar10({url}, web.files).status());
  std::string text;
  add(LineStream::Open(url, web.files, 10)
          .ValueOrThrow()
          ->Next(&text)
          .status());
  // Damaged records.
  std::string record;
  AppendRecord("payload", &record);
  record[kRecordHeadBytes] = 'P';
  Serve(web, record);
  add(RecordFileStream::Open(url, web.files)
          .ValueOrThrow()
          ->Next(&text)
          .status());
  const auto records = RecordFiles::Open({url}, 1, web.files).ValueOrThrow();
  add(records->Read(0).status());
  messages.push_back(records->PlaceOf(0));
  const std::string whole =
      testing::Compressed(std::string(1000, 'x'), Compression::kGzip);
  Serve(web, whole.substr(0, whole.size() - 1));
  const auto compressed = LineStream::Open(url, web.files).ValueOrThrow();
  add(compressed->Next(&text).status());
  messages.push_back(compressed->Place());
  // Malformed tables.
  Serve(web, "a,b\n1,\"2\n");
  const auto rows = CsvStream::Open(url, ',', web.files).ValueOrThrow();
  CsvRow row;
  REQUIRE(rows->Next(&row).ok());
  add(rows->Next(&row).status());
  caught([&] { csv({.infer_rows = 1}); });
  Serve(web, "a,b\n1,2,3\n");
  caught([&] { csv({.infer_rows = 1}); });
  caught([&] { csv({.columns = {{.name = "a"}}}); });
  caught([&] { csv({.columns = {{.name = "none"}}}); });
  caught([&] { ListImagesOfTable(url); });
  Serve(web, "a,b\n1,\n");
  caught([&] { csv({.infer_rows = 1}); });
  Serve(web, "");
  caught([&] { csv({.infer_rows = 1}); });
  caught([&] { ListImagesOfTable(url); });
  // No such tensor.
  testing::FaultFileSystem local;
  const Tensor tensor = Tensor::Full(DType::kFloat32, {2, 3}, 0.5);
  REQUIRE(
      WriteSafetensors("t", std::vector<NamedTensor>{{"t", tensor}}, {}, local)
          .ok());
  Serve(web, *local.Read("t"));
  caught([&] { (void)datasets::Safetensors(url, {.names = {"none"}}); });
  // On another file system.
  add(FileSystem::Default().Rename(url, "a-file"));
  for (const std::string& message : messages) {
    CHECK(Contains(message, web.Url("/page")));
    CHECK(message.find("hush") == std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
#endif
