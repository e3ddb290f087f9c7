// Signatures against those that Amazon publishes: of its documentation of S3
// ("Authenticating Requests: Using the Authorization Header", examples) and of
// the Signature Version 4 test suite (awslabs/aws-c-auth). tests/crosscheck
// compares random requests with botocore.
#include "io/remote/s3/sigv4.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace sluice::remote {
namespace {

#ifdef SLUICE_HAVE_CRYPTO

constexpr std::time_t kSuiteTime = 1440938160;  // 2015-08-30 12:36:00
constexpr std::time_t kS3Time = 1369353600;     // 2013-05-24 00:00:00

std::string Hash(std::string_view bytes) {
  return Sha256Hex(bytes).ValueOrThrow();
}

std::string Header(const NamedValues& headers, std::string_view wanted) {
  for (const auto& [name, value] : headers) {
    if (name == wanted) return value;
  }
  return "none";
}

struct Vector {
  std::string_view name, method, path;
  NamedValues query, headers;
  std::string_view signed_headers, signature;
};

void CheckVector(const Vector& vector, const SigningScope& scope,
                 const Credentials& credentials, const std::string& host,
                 std::string_view body, std::time_t time,
                 const std::string& place) {
  CAPTURE(vector.name);
  const NamedValues added =
      Sign({std::string(vector.method), host, std::string(vector.path),
            vector.query, vector.headers, Hash(body)},
           scope, credentials, time)
          .ValueOrThrow();
  CHECK(
      Header(added, "authorization") ==
      "AWS4-HMAC-SHA256 Credential=" + place +
          "/aws4_request, SignedHeaders=" + std::string(vector.signed_headers) +
          ", Signature=" + std::string(vector.signature));
}

TEST_CASE("the examples of S3's documentation") {
  const auto check = [](const Vector& vector, std::string_view body) {
    CheckVector(vector, {"us-east-1"},
                {"AKIAIOSFODNN7EXAMPLE",
                 "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""},
                "examplebucket.s3.amazonaws.com", body, kS3Time,
                "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3");
  };
  check({"GET Object",
         "GET",
         "/test.txt",
         {},
         {{"Range", "bytes=0-9"}},
         "host;range;x-amz-content-sha256;x-amz-date",
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        "");
  check({"PUT Object",
         "PUT",
         "/test$file.text",
         {},
         {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
          {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
         "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        "Welcome to Amazon S3.");
  check({"GET Bucket Lifecycle",
         "GET",
         "/",
         {{"lifecycle", ""}},
         {},
         "host;x-amz-content-sha256;x-amz-date",
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        "");
  check({"List Objects",
         "GET",
         "/",
         {{"prefix", "J"}, {"max-keys", "2"}},
         {},
         "host;x-amz-content-sha256;x-amz-date",
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
        "");
}

TEST_CASE("the test suite, paths as S3 has them") {
  const std::string unreserved =
      "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const std::string path = "/" + unreserved;
  constexpr std::string_view kPlain = "host;x-amz-date";
  constexpr std::string_view kOneMore = "host;my-header1;x-amz-date";
  const Vector vectors[] = {
      {"get-vanilla",
       "GET",
       "/",
       {},
       {},
       kPlain,
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"post-vanilla",
       "POST",
       "/",
       {},
       {},
       kPlain,
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"get-unreserved",
       "GET",
       path,
       {},
       {},
       kPlain,
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-utf8",
       "GET",
       "/\xe1\x88\xb4",
       {},
       {},
       kPlain,
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-space-unnormalized",
       "GET",
       "/example space/",
       {},
       {},
       kPlain,
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"get-slashes-unnormalized",
       "GET",
       "//example//",
       {},
       {},
       kPlain,
       "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5"},
      {"get-slash-dot-slash-unnormalized",
       "GET",
       "/./",
       {},
       {},
       kPlain,
       "68714168e6557f8f2de0ef956fc24dc2593a4bd2961f8df51898d8a134695145"},
      {"get-relative-unnormalized",
       "GET",
       "/example/..",
       {},
       {},
       kPlain,
       "eca7ead57bb5aa5c8e28007acd4ff04e1ff9a0ff3b237ec1554a184887ff9282"},
      {"get-relative-relative-unnormalized",
       "GET",
       "/example1/example2/../..",
       {},
       {},
       kPlain,
       "dc33e0856fd4baca4d7aa2146c38958283844764f38c74252a333df5e613003b"},
      {"get-vanilla-query-order-key-case",
       "GET",
       "/",
       {{"Param2", "value2"}, {"Param1", "value1"}},
       {},
       kPlain,
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-query-order-encoded",
       "GET",
       "/",
       {{"Param-3", "Value3"}, {"Param", "Value2"}, {"\xe1\x88\xb4", "Value1"}},
       {},
       kPlain,
       "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
      {"get-vanilla-query-unreserved",
       "GET",
       "/",
       {{unreserved, unreserved}},
       {},
       kPlain,
       "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      {"get-vanilla-utf8-query",
       "GET",
       "/",
       {{"\xe1\x88\xb4", "bar"}},
       {},
       kPlain,
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"get-header-key-duplicate",
       "GET",
       "/",
       {},
       {{"My-Header1", "value2"},
        {"My-Header1", "value2"},
        {"My-Header1", "value1"}},
       kOneMore,
       "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
      {"get-header-value-order",
       "GET",
       "/",
       {},
       {{"My-Header1", "value4"},
        {"My-Header1", "value1"},
        {"My-Header1", "value3"},
        {"My-Header1", "value2"}},
       kOneMore,
       "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
      {"get-header-value-trim",
       "GET",
       "/",
       {},
       {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {"post-header-value-case",
       "POST",
       "/",
       {},
       {{"My-Header1", "VALUE1"}},
       kOneMore,
       "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
  };
  Credentials credentials = {"AKIDEXAMPLE",
                             "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
  const auto check = [&](const Vector& vector) {
    CheckVector(vector, {"us-east-1", "service"}, credentials,
                "example.amazonaws.com", "", kSuiteTime,
                "AKIDEXAMPLE/20150830/us-east-1/service");
  };
  for (const Vector& vector : vectors) check(vector);
  credentials.session_token =
      "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
  check({"get-vanilla-with-session-token",
         "GET",
         "/",
         {},
         {},
         "host;x-amz-date;x-amz-security-token",
         "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"});
}

TEST_CASE("the headers that are added, and no secret in them") {
  const SigningRequest request = {"GET", "h", "/k",
                                  {},    {},  std::string(kUnsignedPayload)};
  const Credentials credentials = {"ACCESS", "HIDDEN", "TOKEN"};
  NamedValues added = Sign(request, {"r"}, credentials, 0).ValueOrThrow();
  REQUIRE(added.size() == 4);
  CHECK(added[0] ==
        std::pair<std::string, std::string>("x-amz-date", "19700101T000000Z"));
  CHECK(Header(added, "x-amz-content-sha256") == "UNSIGNED-PAYLOAD");
  CHECK(Header(added, "x-amz-security-token") == "TOKEN");
  for (const auto& [name, value] : added) {
    CHECK(value.find("HIDDEN") == std::string::npos);
  }
  added =
      Sign(request, {"r", "other"}, {"A", "B", ""}, 951782400).ValueOrThrow();
  REQUIRE(added.size() == 2);
  CHECK(Header(added, "x-amz-date") == "20000229T000000Z");
}

TEST_CASE("whatever is signed changes the signature") {
  const SigningRequest request = {
      "GET", "h", "/k", {{"a", "b"}}, {{"range", "bytes=0-1"}}, Hash("")};
  const Credentials credentials = {"A", "B", "C"};
  const auto signature = [](const SigningRequest& r, const SigningScope& s,
                            const Credentials& c, std::time_t time) {
    return Header(Sign(r, s, c, time).ValueOrThrow(), "authorization");
  };
  const std::string first = signature(request, {"r"}, credentials, 7);
  CHECK(signature(request, {"r"}, credentials, 7) == first);
  SigningRequest other = request;
  const auto differs = [&] {
    CHECK(signature(other, {"r"}, credentials, 7) != first);
    other = request;
  };
  other.method = "PUT";
  differs();
  other.host = "h:1";
  differs();
  other.path = "/k/";
  differs();
  other.query[0].second = "c";
  differs();
  other.headers[0].second = "bytes=0-2";
  differs();
  other.payload_hash = Hash("x");
  differs();
  CHECK(signature(request, {"q"}, credentials, 7) != first);
  CHECK(signature(request, {"r", "t"}, credentials, 7) != first);
  CHECK(signature(request, {"r"}, credentials, 8) != first);
  CHECK(signature(request, {"r"}, {"A", "b", "C"}, 7) != first);
  CHECK(signature(request, {"r"}, {"A", "B", "c"}, 7) != first);
}

TEST_CASE("SHA-256 of FIPS 180-2, in pieces too") {
  CHECK(Hash("") ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Hash("abc") ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Hash(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const std::string_view pieces[] = {"a", "", "bc"};
  CHECK(Sha256Hex(pieces).ValueOrThrow() == Hash("abc"));
}

#else

TEST_CASE("without OpenSSL there are no signatures") {
  CHECK(Sign({}, {}, {}, 0).status().code() == Code::kUnimplemented);
  CHECK(Sha256Hex("").status().code() == Code::kUnimplemented);
}

#endif

}  // namespace
}  // namespace sluice::remote
