// S3's answers: each element, the ways that servers differ, and damaged ones.
#include "io/remote/s3/s3_xml.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "io/remote/http/url.h"
#include "io/remote/http/xml.h"
#include "tests/support/random_bytes.h"

namespace sluice::remote {
namespace {

#ifdef SLUICE_HAVE_EXPAT

using testing::Below;
using testing::RandomBytes;

constexpr std::string_view kHead =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";

std::string List(const std::string& elements) {
  return std::string(kHead) + elements + "</ListBucketResult>";
}

TEST_CASE("a list as S3 writes it") {
  const ObjectList list = ParseObjectList(List(R"(
  <Name>bucket</Name><Prefix>photos/</Prefix><KeyCount>3</KeyCount>
  <MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter>
  <IsTruncated>true</IsTruncated>
  <NextContinuationToken>1ueGc+/==</NextContinuationToken>
  <Contents>
    <Key>photos/a &amp; b &#233;.jpg</Key>
    <LastModified>2009-10-12T17:50:30.000Z</LastModified>
    <ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag>
    <Size>434234</Size><StorageClass>STANDARD</StorageClass>
    <Owner><ID>x</ID><DisplayName>y</DisplayName></Owner>
  </Contents>
  <Contents><Key> </Key><Size>18446744073709551615</Size></Contents>
  <CommonPrefixes><Prefix>photos/2006/</Prefix></CommonPrefixes>
  <CommonPrefixes><Prefix>photos/2007/</Prefix></CommonPrefixes>
)"))
                              .ValueOrThrow();
  CHECK(list.objects ==
        std::vector<ListedObject>{{"photos/a & b \xc3\xa9.jpg", 434234,
                                   "\"fba9dede5f27731c9771645a39863328\""},
                                  {" ", 18446744073709551615u, ""}});
  CHECK(list.common_prefixes ==
        std::vector<std::string>{"photos/2006/", "photos/2007/"});
  CHECK(list.next_token == "1ueGc+/==");
}

TEST_CASE(
    "a last page, without a namespace, with a prefix for it, after "
    "spaces") {
  for (const char* body :
       {"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        "<a:ListBucketResult xmlns:a='u:v'><a:IsTruncated>false"
        "</a:IsTruncated></a:ListBucketResult>",
        " \n <?xml version='1.0'?>\r\n<ListBucketResult><IsTruncated>\nfalse "
        "</IsTruncated></ListBucketResult>\n\n"}) {
    CAPTURE(body);
    const ObjectList list = ParseObjectList(body).ValueOrThrow();
    CHECK(list.objects.empty());
    CHECK(list.common_prefixes.empty());
    CHECK(list.next_token.empty());
  }
  // The token of a page that is the last is none.
  CHECK(ParseObjectList(List("<NextContinuationToken>x</NextContinuationToken>"
                             "<IsTruncated>false</IsTruncated>"))
            .ValueOrThrow()
            .next_token.empty());
}

TEST_CASE("encoded names are decoded, wherever it says that they are") {
  const std::string names =
      "<IsTruncated>false</IsTruncated><Contents><Key>a+b%2Bc%01%2F%C3%A9"
      "</Key><Size>1</Size></Contents><CommonPrefixes><Prefix>x%20y/</Prefix>"
      "</CommonPrefixes>";
  const std::string encoding = "<EncodingType>url</EncodingType>";
  for (const std::string& elements : {encoding + names, names + encoding}) {
    const ObjectList list = ParseObjectList(List(elements)).ValueOrThrow();
    CHECK(list.objects[0].key == "a b+c\x01/\xc3\xa9");
    CHECK(list.common_prefixes[0] == "x y/");
  }
  const ObjectList list = ParseObjectList(List(names)).ValueOrThrow();
  CHECK(list.objects[0].key == "a+b%2Bc%01%2F%C3%A9");
  CHECK(list.common_prefixes[0] == "x%20y/");
  CHECK(ParseObjectList(List(encoding +
                             "<IsTruncated>false</IsTruncated><Contents><Key>%"
                             "</Key><Size>1</Size></Contents>"))
            .status()
            .code() == Code::kDataLoss);
}

TEST_CASE("what is no list says why") {
  const auto message = [](const std::string& body) {
    const Status status = ParseObjectList(body).status();
    CHECK(status.code() == Code::kDataLoss);
    return status.message();
  };
  const std::string last = "<IsTruncated>false</IsTruncated>";
  CHECK(message("") == "an answer of S3 is no XML: no element found at byte 0");
  CHECK(message("gibberish").find("is no XML") != std::string::npos);
  CHECK(message("<Error><Code>x</Code></Error>") ==
        "an answer of S3 is <Error>, wanted <ListBucketResult>");
  CHECK(message(List("")) == "a list of S3 does not say whether it ends");
  CHECK(message(List("<IsTruncated>true</IsTruncated><NextMarker>a"
                     "</NextMarker>")) ==
        "a list of S3 goes on without saying how: the server knows no "
        "ListObjectsV2");
  CHECK(message(List(last + "<Contents><Size>1</Size></Contents>")) ==
        "a list of S3 has an object without key");
  CHECK(message(List(last + "<Contents><Key>a</Key></Contents>")) ==
        "a list of S3 has an object without size");
  // What one object lacks the next does not lend it.
  CHECK(message(List(last + "<Contents><Key>a</Key><Size>1</Size></Contents>"
                            "<Contents><Key>b</Key></Contents>")) ==
        "a list of S3 has an object without size");
  for (const char* size : {"", "-1", "1x", "18446744073709551616", "1 2"}) {
    CHECK(message(List(last + "<Contents><Key>a</Key><Size>" + size +
                       "</Size></Contents>")) ==
          "a list of S3 gives an object's size as '" + std::string(size) + "'");
  }
}

TEST_CASE("a body cut anywhere is an error, never a shorter list") {
  const std::string body = List(
      "<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>1"
      "</Size></Contents><Contents><Key>b</Key><Size>2</Size></Contents>");
  CHECK(ParseObjectList(body).ok());
  for (size_t n = 0; n < body.size(); ++n) {
    CHECK(ParseObjectList(body.substr(0, n)).status().code() ==
          Code::kDataLoss);
  }
}

TEST_CASE("random keys come back as they are named") {
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    ObjectList want;
    std::string elements =
        "<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>";
    for (size_t n = Below(random, 5); n > 0; --n) {
      const std::string key = RandomBytes(random, Below(random, 30));
      want.objects.push_back({key, random(), "\"" + std::to_string(n) + "\""});
      const ListedObject& object = want.objects.back();
      elements += "<Contents><Key>" + EncodePath(key) + "</Key><Size>" +
                  std::to_string(object.size) + "</Size><ETag>" +
                  EscapedXml(object.etag) + "</ETag></Contents>";
    }
    CHECK(ParseObjectList(List(elements)).ValueOrThrow().objects ==
          want.objects);
  }
}

TEST_CASE("attacks are errors") {
  const std::string laughs =
      "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY a \"ha\">"
      "<!ENTITY b \"&a;&a;\">]><x>&b;</x>";
  const auto message = [](const std::string& body) {
    return ParseObjectList(body).status().message();
  };
  CHECK(message(laughs) ==
        "an answer of S3 has a DOCTYPE, as a page of HTML has");
  CHECK(message("<!DOCTYPE html><html></html>") ==
        "an answer of S3 has a DOCTYPE, as a page of HTML has");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  CHECK(message(deep) == "an answer of S3 has elements in more than 16 others");
  CHECK(message(std::string((16 << 20) + 1, ' ')) ==
        "an answer of S3 has more than 16 MiB");
  CHECK(message(List("&#1;")).find("is no XML") != std::string::npos);
  CHECK(message(List("\xff")).find("is no XML") != std::string::npos);
  CHECK(message(List("&nbsp;")).find("is no XML") != std::string::npos);
}

TEST_CASE("an upload begins with its id") {
  CHECK(ParseUploadId("<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k"
                      "</Key><UploadId>VXBs_.-~</UploadId>"
                      "</InitiateMultipartUploadResult>")
            .ValueOrThrow() == "VXBs_.-~");
  const std::string_view bodies[] = {
      "", "<InitiateMultipartUploadResult/>",
      R"(<InitiateMultipartUploadResult><UploadId></UploadId>
         </InitiateMultipartUploadResult>)",
      "<Other><UploadId>x</UploadId></Other>",
      "<InitiateMultipartUploadResult><UploadId>x</UploadId>"};
  for (const std::string_view body : bodies) {
    CAPTURE(body);
    CHECK(ParseUploadId(body).status().code() == Code::kDataLoss);
  }
}

TEST_CASE("an upload ends well, or with an error behind 200") {
  const S3Outcome good =
      ParseS3Outcome(
          "\n  <?xml version=\"1.0\"?>\n\n<CompleteMultipartUpload"
          "Result><Location>http://b/k</Location><ETag>&quot;3858-2"
          "&quot;</ETag></CompleteMultipartUploadResult>")
          .ValueOrThrow();
  CHECK(good.ok());
  CHECK(good.etag == "\"3858-2\"");
  CHECK(ParseS3Outcome("<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")
            .ValueOrThrow()
            .etag == "e");
  CHECK(ParseS3Outcome("<CopyPartResult><LastModified>2009-10-28T22:32:00.000Z"
                       "</LastModified><ETag>&quot;e&quot;</ETag>"
                       "</CopyPartResult>")
            .ValueOrThrow()
            .etag == "\"e\"");
  // As moto's server has it.
  CHECK(ParseS3Outcome("<CompleteMultipartUploadResponse><ETag>e</ETag>"
                       "</CompleteMultipartUploadResponse>")
            .ValueOrThrow()
            .etag == "e");
  const S3Outcome bad =
      ParseS3Outcome(
          "<?xml version=\"1.0\"?>\n   \n<Error><Code>InternalError"
          "</Code><Message>Try again.</Message></Error>")
          .ValueOrThrow();
  CHECK(!bad.ok());
  CHECK(bad.error == S3Error{"InternalError", "Try again."});
  CHECK(!ParseS3Outcome("<Error/>").ValueOrThrow().ok());
  // A cut answer may have been either.
  for (const char* body : {"", "<Error><Code>x</Code>", "<html></html>",
                           "<CompleteMultipartUploadResult><ETag>e</ETag>"}) {
    CAPTURE(body);
    CHECK(ParseS3Outcome(body).status().code() == Code::kDataLoss);
  }
}

TEST_CASE("the parts of an upload by their numbers") {
  CHECK(CompleteUploadBody({}) ==
        "<CompleteMultipartUpload></CompleteMultipartUpload>");
  const std::vector<std::string> etags = {"\"a\"", "<b>&c]]>", "\r\n", ""};
  const std::string body = CompleteUploadBody(etags);
  std::string root;
  std::vector<std::string> seen;
  REQUIRE(ReadXml(body, &root, [&](std::string_view path, std::string text) {
            if (path == "Part/ETag") seen.push_back(text);
            if (path == "Part/PartNumber") {
              CHECK(text == std::to_string(seen.size() + 1));
            }
            return Status::Ok();
          }).ok());
  CHECK(root == "CompleteMultipartUpload");
  CHECK(seen == etags);
}

TEST_CASE("damaged answers end in an answer or an error") {
  std::mt19937 random(5);
  const std::string bodies[] = {
      List("<IsTruncated>true</IsTruncated><NextContinuationToken>t"
           "</NextContinuationToken><Contents><Key>a&amp;</Key><Size>1</Size>"
           "<ETag>&quot;e&quot;</ETag></Contents><EncodingType>url"
           "</EncodingType>"),
      "<Error><Code>a</Code><Message>b</Message></Error>",
      "<CompleteMultipartUploadResult><ETag>e</ETag>"
      "</CompleteMultipartUploadResult>"};
  for (int i = 0; i < 20000; ++i) {
    std::string body = bodies[Below(random, std::size(bodies))];
    for (size_t n = 1 + Below(random, 4); n > 0; --n) {
      const size_t at = Below(random, body.size());
      switch (Below(random, 3)) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, 1 + Below(random, 10));
          break;
        default:
          body.insert(at, body.substr(Below(random, body.size()), 10));
      }
      if (body.empty()) body = " ";
    }
    const auto list = ParseObjectList(body);
    CHECK((list.ok() || list.status().code() == Code::kDataLoss));
    (void)ParseS3Error(body);
    (void)ParseUploadId(body);
    (void)ParseS3Outcome(body);
  }
}

#else

TEST_CASE("without expat no answer is understood") {
  CHECK(ParseObjectList("").status().code() == Code::kUnimplemented);
  CHECK(ParseUploadId("").status().code() == Code::kUnimplemented);
  CHECK(ParseS3Outcome("").status().code() == Code::kUnimplemented);
}

#endif

}  // namespace
}  // namespace sluice::remote
