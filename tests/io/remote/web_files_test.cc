// https:// and http:// for reading.
#ifdef SLUICE_HAVE_CURL
#include "io/remote/web_files.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "io/checkpoints/safetensors.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/web_page.h"

namespace sluice::remote {
namespace {

using testing::Contains;
using testing::FaultFileSystem;
using Page = testing::ServedPage;
using Fixture = testing::WebFixture;

TEST_CASE("web: pages are read whole and in part") {
  for (const size_t size : {0, 1, 99, 100, 101, 300, 301, 5000}) {
    CAPTURE(size);
    Fixture f(size);
    CHECK(*f.files.Read(f.Url()) == f.body);
    CHECK(*f.files.Size(f.Url()) == size);
    CHECK(*f.files.Exists(f.Url()));
    CHECK(*f.files.ReadPrefix(f.Url(), 50) == f.body.substr(0, 50));
    const auto file = *f.files.OpenRead(f.Url());
    CHECK(file->size() == size);
    std::string bytes(size + 3, '?');
    for (size_t at = 0; at < size; at += 70) {
      const size_t got = *file->ReadAt(at, bytes.data(), 90);
      CHECK(bytes.substr(0, got) == f.body.substr(at, 90));
    }
    CHECK(f.Last().target == "/page?secret=hush");
  }
}

TEST_CASE("web: a size beyond everything costs neither memory nor time") {
  for (const char* size : {"100000000000", "9223372036854775807"}) {
    Fixture f(5000);
    f.Change([&](Page& page) { page.claimed = size; });
    CHECK(f.files.Read(f.Url()).status().code() == Code::kUnavailable);
    // Of what is there one may still have some.
    CHECK(*f.files.ReadPrefix(f.Url(), 1000) == f.body.substr(0, 1000));
  }
}

TEST_CASE("web: redirections are followed") {
  Fixture f(1000);
  CHECK(*f.files.Read(f.Url("/moved")) == f.body);
}

TEST_CASE("web: a server without ranges gives whole files alone") {
  for (const bool length : {true, false}) {
    for (const size_t size : {0, 60, 100, 101, 5000}) {
      CAPTURE(size);
      Fixture f(size);
      f.Change([&](Page& page) {
        page.ranges = false;
        page.length = length;
      });
      CHECK(*f.files.Read(f.Url()) == f.body);
      CHECK(*f.files.ReadPrefix(f.Url(), 50) == f.body.substr(0, 50));
      const auto stated = f.files.Size(f.Url());
      if (length || size == 0) {
        CHECK(*stated == size);
      } else {
        CHECK(stated.status().code() == Code::kUnimplemented);
      }
      const auto file = f.files.OpenRead(f.Url());
      if (size <= 100) {
        REQUIRE(file.ok());
        CHECK((*file)->size() == size);
      } else {
        CHECK(file.status().code() == Code::kUnimplemented);
        CHECK(Contains(file.status().message(), "ranges"));
      }
    }
  }
}

TEST_CASE("web: tensors are read in parts, or as a whole without ranges") {
  FaultFileSystem local;
  const Tensor tensor = Tensor::Full(DType::kFloat32, {20, 30}, 0.5);
  REQUIRE(
      WriteSafetensors("t", std::vector<NamedTensor>{{"t", tensor}}, {}, local)
          .ok());
  for (const bool ranges : {true, false}) {
    CAPTURE(ranges);
    Fixture f(0);
    f.Change([&](Page& page) {
      page.ranges = ranges;
      page.body = *local.Read("t");
    });
    const auto read = ReadSafetensors(f.Url(), f.files);
    REQUIRE(read.ok());
    REQUIRE(read->tensors.size() == 1);
    CHECK(read->tensors[0].tensor.BitEqual(tensor));
  }
}

TEST_CASE("web: a page that changes while it is read is an error") {
  for (const bool with_etag : {true, false}) {
    Fixture f(2000);
    if (!with_etag) f.Change([](Page& page) { page.etag.clear(); });
    const auto file = *f.files.OpenRead(f.Url());
    std::string out(10, '?');
    CHECK(*file->ReadAt(500, out.data(), 10) == 10);
    CHECK(f.Last().headers.contains("if-match") == with_etag);
    CHECK(f.Last().headers.contains("if-unmodified-since") == !with_etag);
    if (with_etag) f.Change([](Page& page) { page.etag = "\"f\""; });
    if (!with_etag)
      f.Change(
          [](Page& page) { page.modified = "Sun, 06 Nov 1994 08:49:38 GMT"; });
    CHECK(file->ReadAt(1500, out.data(), 10).status().code() ==
          Code::kUnavailable);
  }
  // By its size alone; and a weak ETag is compared, not sent.
  Fixture f(2000);
  f.Change([](Page& page) {
    page.etag.clear();
    page.modified.clear();
  });
  const auto file = *f.files.OpenRead(f.Url());
  f.Change([](Page& page) { page.body += "x"; });
  std::string out(10, '?');
  CHECK(!file->ReadAt(1500, out.data(), 10).ok());
  f.Change([](Page& page) { page.etag = "W/\"e\""; });
  const auto weak = *f.files.OpenRead(f.Url());
  CHECK(weak->ReadAt(1500, out.data(), 10).ok());
  CHECK(!f.Last().headers.contains("if-match"));
  f.Change([](Page& page) { page.etag = "W/\"f\""; });
  CHECK(!weak->ReadAt(900, out.data(), 10).ok());
}

TEST_CASE("web: errors show neither queries nor what else is secret") {
  Fixture f(10);
  const std::string missing = f.Url("/missing?X-Amz-Signature=hush");
  std::vector<Status> errors = {f.files.Read(missing).status(),
                                f.files.OpenRead(missing).status(),
                                f.files.Size(missing).status()};
  for (const Status& error : errors) CHECK(error.code() == Code::kNotFound);
  CHECK(!*f.files.Exists(missing));
  errors.push_back(f.files.Create(missing).status());
  errors.push_back(f.files.OpenAppend(missing).status());
  errors.push_back(f.files.WriteAtomically(missing, "x"));
  errors.push_back(f.files.Rename(missing, missing));
  errors.push_back(f.files.Remove(missing));
  errors.push_back(f.files.MakeDirectories(missing));
  errors.push_back(f.files.Lock(missing, "").status());
  for (size_t i = 3; i < errors.size(); ++i) {
    CHECK(errors[i].code() == Code::kUnavailable);
  }
  errors.push_back(f.files.List(missing).status());
  CHECK(errors.back().code() == Code::kUnimplemented);
  errors.push_back(f.files.Exists(f.Url("/forbidden?hush")).status());
  CHECK(errors.back().code() == Code::kFailedPrecondition);
  errors.push_back(f.files.Read("http://user:hush@127.0.0.1/").status());
  CHECK(errors.back().code() == Code::kInvalidArgument);
  // What reads tensors names the address, too: here they are none.
  const std::string page = f.Url("/page?X-Amz-Signature=hush#hush");
  for (const std::string& url : {page, missing}) {
    for (const Status& error : {ReadSafetensors(url, f.files).status(),
                                ReadSafetensorsHeader(url, f.files).status()}) {
      const std::string path = url.substr(0, url.find('?'));
      const size_t named = error.message().find(path);
      CHECK(named != std::string::npos);
      CHECK(error.message().find(path, named + 1) == std::string::npos);
      errors.push_back(error);
    }
  }
  for (const Status& error : errors) {
    CHECK(Contains(error.message(), "http://127.0.0.1"));
    CHECK(error.message().find("hush") == std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::remote
#endif
