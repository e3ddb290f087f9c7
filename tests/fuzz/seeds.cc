// fuzz_seeds DIR: writes the fuzzers' first inputs to DIR/<fuzzer>/.
#include <zlib.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/cluster/introduction.h"
#include "dist/cluster/message.h"
#include "dist/collective/hello.h"
#include "dist/collective/offer.h"
#include "dist/collective/places.h"
#include "dist/membership/control.h"
#include "dist/membership/roster.h"
#include "dist/net/authority.h"
#include "dist/net/credentials.h"
#include "dist/net/frame.h"
#include "dist/net/tls.h"
#include "dist/servers/admission.h"
#include "dist/servers/pace.h"
#include "engine/text/json.h"
#include "graph/passes/device_description.h"
#include "io/checkpoints/checkpoint.h"
#include "io/checkpoints/safetensors.h"
#include "io/files/file.h"
#include "io/files/record.h"
#include "io/images/png.h"
#include "io/records/tf_example.h"
#include "io/summaries/event_proto.h"
#include "tests/support/exif_bytes.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/pth_bytes.h"
#if SLUICE_HAVE_JPEG
#include "tests/support/random_jpeg.h"
#endif
#include "tests/support/tar_bytes.h"
#include "tests/support/tls_greeting.h"

namespace sluice {
namespace {

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return "";
  }
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A round of two workers, one of which is late.
std::string Contributions() {
  using Kind = dist::Admission::Kind;
  std::string lines;
  for (const auto& [kind, rank] :
       {std::pair(Kind::kBegin, 0), std::pair(Kind::kOffer, 0),
        std::pair(Kind::kApplied, 0), std::pair(Kind::kOffer, 1)}) {
    lines +=
        TextOf(dist::AdmissionCall{1, 2, 1, {kind, rank, 0, 4, 8, 1, 1, 8}});
    lines += '\n';
  }
  return lines + TextOf(dist::Admission::Answer{
                     dist::Admission::Reply::kOver, {}, 1, 1, 4, {0, 1}});
}

std::string Safetensors() {
  testing::FaultFileSystem memory;
  const NamedTensor tensors[] = {
      {"a", Tensor::Full(DType::kFloat32, {2, 2}, 1)},
      {"b", Tensor::Full(DType::kBool, {3}, 1)},
      {"c", Tensor(DType::kInt64, {0})}};
  ThrowIfError(WriteSafetensors("f", tensors, {{"k", "v"}}, memory));
  return memory.Read("f").ValueOrThrow();
}

// A header of less than 256 bytes.
std::string WithLength(const std::string& header) {
  return static_cast<char>(header.size()) + std::string(7, '\0') + header;
}

std::string Events() {
  std::string file;
  AppendRecord(EncodeVersionEvent({1, 0}).ValueOrThrow(), &file);
  AppendRecord(EncodeScalarEvent({1, 2}, "loss", 0.5).ValueOrThrow(), &file);
  AppendRecord(
      EncodeHistogramEvent({1, 2}, "w", Tensor::Full(DType::kFloat32, {3}, 2))
          .ValueOrThrow(),
      &file);
  AppendRecord(EncodeGraphEvent({1, 0}, {{{"x", "Neg", {"y"}, "", {{2}}, {}}}})
                   .ValueOrThrow(),
               &file);
  return file;
}

std::string EncodedExample() {
  const std::pair<std::string, TfFeature> features[] = {
      {"image", std::vector<std::string>{"abc", ""}},
      {"box", std::vector<float>{0.5f, -1}},
      {"label", std::vector<int64_t>{7, -1}}};
  return EncodeTfExample(features).ValueOrThrow();
}

std::string Records() {
  std::string file;
  AppendRecord(EncodedExample(), &file);
  AppendRecord("", &file);
  return file;
}

std::string EncodedFrame(const dist::Frame& frame) {
  std::array<std::byte, dist::kFrameBytes> header;
  dist::Encode(frame, header);
  return {reinterpret_cast<const char*>(header.data()), header.size()};
}

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string EncodedHello() {
  dist::Hello hello;
  hello.rank = 1;
  hello.size = 3;
  hello.token = std::string(64, 'a');
  hello.version = "0.1.0";
  hello.address = "127.0.0.1";
  hello.port = 4000;
  hello.node = "a";
  return TextOf(dist::EncodeHello(hello).ValueOrThrow());
}

// Behind the byte that says where the fuzzer cuts.
std::string SuspicionAndBeat() {
  dist::ControlMessage suspicion, beat;
  suspicion.kind = dist::FrameKind::kSuspect;
  suspicion.whom = 2;
  suspicion.reason = Unavailable("gone");
  return "0" + dist::Encoded(suspicion) + dist::Encoded(beat);
}

void Seed(const std::string& folder, const std::string& name,
          const std::string& bytes) {
  FileSystem& files = FileSystem::Posix();
  ThrowIfError(files.MakeDirectories(folder));
  ThrowIfError(files.WriteAtomically(JoinPath(folder, name), bytes));
}

std::string NumberText(int64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

// What processes say when they meet, each behind the byte that says what it is.
void Introductions(const std::string& dir) {
  const auto seed = [&](char kind, const std::string& name,
                        const std::string& text) {
    Seed(dir + "/introductions_fuzz", name, kind + text);
  };
  DeviceDescription device =
      DeviceDescription::OfKind(ParseDeviceName("/cpu:0").ValueOrThrow());
  device.kernels["Neg"] = DTypeSet{DType::kFloat32};
  dist::Peer peer;
  peer.address = {"/job:worker/task:1", "127.0.0.1", 4000};
  peer.descriptions = {device.ToText()};
  peer.incarnations = {7};
  seed('\0', "stream", dist::Introduction{"a", "1", true}.ToText());
  seed('\1', "peer", peer.ToText());
  seed('\2', "device", device.ToText());
  seed('\3', "offer", dist::Offer{"a", "b", "c"}.Text());
  seed('\4', "places",
       TextOf(dist::Encoded({{"127.0.0.1", 4000, 1}, {"b", 0, 0}})));
}

// Frames of what two that may share memory say: `how` and where to cut first.
std::string Shared(const std::string& how, const std::string& offer,
                   uint64_t answer) {
  std::string said = how;
  for (const auto& [count, text] :
       {std::pair(answer, offer), std::pair(uint64_t{1}, std::string())}) {
    dist::Frame frame;
    frame.kind = dist::FrameKind::kMemory;
    frame.count = count;
    frame.bytes = text.size();
    said += EncodedFrame(frame) + text;
  }
  return said;
}

// Heads and bodies (calls.h).
std::string Calls(const std::vector<std::pair<std::string, std::string>>& all) {
  std::string text;
  for (const auto& [head, body] : all) text += head + "\x1e" + body + "\x1e";
  return text;
}

std::string CallsOfMasters() {
  const std::string device = "/job:worker/task:0/cpu:0";
  const std::string variable =
      R"(", "session": $, "variable": "v", "device": ")" + device + R"(", )";
  const std::string part =
      R"({"device": ")" + device +
      R"(", "incarnation": $, "edges": 0, "parts": 1, "deterministic": true,)"
      R"( "precision": "fp32", "executor": "auto", "seed": 1})"
      "\nn = NoOp() @ " +
      device + "\n";
  const std::string incarnation(19, '1');
  const size_t size = part.size() - 1 + incarnation.size();
  return Calls(
      {{R"({"call": "write)" + variable +
            R"("dtype": "float32", "shape": [2]})",
        "abcdefgh"},
       {R"({"call": "read)" + variable + R"("x": 1})", ""},
       {R"({"call": "read rows)" + variable + R"("begin": 0, "count": 1})", ""},
       {R"({"call": "write rows)" + variable +
            R"("begin": 1, "dtype": "float32", "shape": [1]})",
        "abcd"},
       {R"({"call": "register", "session": $, "step": 1, "sizes": [)" +
            std::to_string(size) + "]}",
        part},
       {R"({"call": "drop", "session": $, "step": 1})", ""},
       {R"({"call": "ask", "text": "a"})", ""},
       {R"({"call": "reach", "session": $, "task": "", )"
        R"("incarnations": ["5"]})",
        ""}});
}

std::string AnswersOfWorkers() {
  DeviceDescription device = DeviceDescription::OfKind(
      ParseDeviceName("/job:worker/task:0/cpu:0").ValueOrThrow());
  device.incarnation = 7;
  const Json opened = {{"session", 1}, {"descriptions", Json::Array()}};
  std::string head = opened.Text();
  head.insert(head.find('[') + 1, Json(device.ToText()).Text());
  const std::string tensor = R"({"dtype": "float32", "shape": [1]})";
  return Calls({{R"({})", ""},  // it is here
                {head, ""},
                {"{}", ""},
                {tensor, "abcd"},
                {R"({"is": true})", ""},
                {tensor, "abcd"},
                {R"({"text": "a"})", ""},
                {"{}", ""}});
}

// What the other rank of two says, of each kind.
void Ranks(const std::string& dir) {
  const auto seed = [&](char kind, const std::string& name,
                        const std::string& said) {
    Seed(dir + "/ranks_fuzz", name, kind + said);
  };
  seed('\0', "decision", std::string("\1\0\0\1stop", 8));
  std::string numbers;
  for (const double number : {3., 0., 1., 2.}) {
    numbers += {reinterpret_cast<const char*>(&number), sizeof(number)};
  }
  seed('\1', "metrics", NumberText(32) + numbers);
  const std::string state = PrintTrainingState({});
  seed('\2', "state", NumberText(static_cast<int64_t>(state.size())) + state);
  const std::string trace =
      R"({"traceEvents": [{"name": "process_name", "pid": 0, "tid": 1,)"
      R"( "ts": 2.5, "args": {"name": "/cpu:0"}}]})";
  seed('\3', "trace",
       std::string(256, '\0') + NumberText(static_cast<int64_t>(trace.size())) +
           trace);
}

constexpr char kGraph[] = R"(x = Placeholder() {dtype = float32, shape = [?,4]}
w = Variable() {dtype = float32, shape = [4,2]} : float32[4,2] @ /cpu:0
y = MatMul(x, w) {transpose_a = false, transpose_b = false} : float32[?,2]
"a b" = Const() {value = float32[2] {1, -0.5}} from x
s = Split(y, ^w) {axis = 1, num = 2} : float32[?,1], float32[?,1]
c = Const() {value = int64[3] base64 "AQAAAAAAAAACAAAAAAAAAAMAAAAAAAAA"}
z = AssignAdd(w, w, ^y, ^s)
f = Fetch(s:1) {index = 0} # done
k = SendStart(z) {key = "a\x00;\"b"}
t = Transpose(w) {permutation = [1,0]}
u = Tile(t) {multiples = [2,1]}
e = Const() {value = int8[0,16777216,16777216] {}}
)";

constexpr char kPlan[] =
    R"({"version": ")" SLUICE_VERSION
    R"(", "command": ["a"], "folder": "/", "rank": 1, "server": -1,)"
    R"( "size": 2, "first": 1, "local_size": 1, "job": "b", "coordinator": "",)"
    R"( "first_port": 0, "servers": "", "servers_return": false,)"
    R"( "listen": "", "port": 0, "one_host": true,)"
    R"( "token": "", "credentials": [], "certificates": "",)"
    R"( "allow_plaintext": false, "pin": false, "elastic": false,)"
    R"( "address": "", "timeout_kill": 5.0, "peer_timeout": 60.0})";

constexpr char kObjectList[] = R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>
<NextContinuationToken>a</NextContinuationToken>
<Contents><Key>a%20b</Key><Size>7</Size><ETag>&quot;c&quot;</ETag></Contents>
<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>)";

// Small ones of each form, so that what is changed in them matters.
void Pictures(const std::string& dir) {
#if SLUICE_HAVE_JPEG
  testing::Random random(1);
  int number = 0;
  for (const testing::Form& form : testing::kForms) {
    for (const bool progressive : {false, true}) {
      testing::Writing writing = testing::RandomWriting(random);
      writing.progressive = progressive;
      const Tensor picture = testing::RandomPicture(
          random, random.Between(1, 40), random.Between(1, 40), form.channels);
      Seed(dir + "/jpeg_fuzz", std::to_string(number++),
           testing::Encode(picture, form, writing));
    }
  }
#endif
  for (const int64_t channels : {1, 3, 4}) {
    const auto png =
        EncodePng(Tensor::Full(DType::kUInt8, {5, 7, channels}, 9));
    if (!png.ok()) continue;  // this build has no libpng
    Seed(dir + "/png_fuzz", std::to_string(channels), *png);
  }
  // Palette of 4 colours, 4 bits, interlaced; 16 bits.
  Seed(dir + "/png_fuzz", "palette",
       std::string("\4\0\0\0\3\0\0\0\4\4\3\0\0\1rgbRGBxyzXYZ\0\1\0\1\0\1", 32));
  Seed(dir + "/png_fuzz", "deep",
       std::string("\0\0\0\0\1\0\0\0\2\x10\4\0\0\0\1abcdefgh", 23));
}

void WriteSeeds(const std::string& dir) {
  const std::string idx("\0\0\x08\2\0\0\0\2\0\0\0\3abcdef", 18);
  Seed(dir + "/idx_fuzz", "plain", idx);
  Seed(dir + "/idx_fuzz", "gzip", Gzip(idx));
  Seed(dir + "/idx_fuzz", "double",
       std::string("\0\0\x0e\1\0\0\0\1\0\0\0\0\0\0\0\0", 16));
  // No elements, for all that too large for any tensor.
  Seed(dir + "/idx_fuzz", "empty",
       std::string("\0\0\x08\3\0\0\0\0\xff\0\0\0\xff\0\0\0", 16));
  Seed(dir + "/safetensors_fuzz", "three", Safetensors());
  Seed(dir + "/safetensors_fuzz", "plain",
       WithLength(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})") +
           "ab");
  Seed(dir + "/safetensors_fuzz", "empty",
       WithLength(R"({"a":{"dtype":"U8","shape":[0,16777216,16777216],)"
                  R"("data_offsets":[0,0]}})"));
  const std::string pickle = testing::PickledDict(
      testing::PickledTensor{.sizes = {3, 2}, .strides = {1, 3}}.Text());
  Seed(dir + "/pth_fuzz", "pickle", pickle);
  Seed(dir + "/pth_fuzz", "file",
       testing::PthFile(pickle, {{"0", std::string(24, 'a')}}));
  // Without protobuf there are neither events nor tf.Examples.
  if (EncodeVersionEvent({0, 0}).ok()) {
    Seed(dir + "/event_fuzz", "events", Events());
    Seed(dir + "/records_fuzz", "records", Records());
    Seed(dir + "/records_fuzz", "example", EncodedExample());
  }
  std::string records;
  for (const char* payload : {"a", "", "longer"}) {
    AppendRecord(payload, &records);
  }
  Seed(dir + "/record_index_fuzz", "fits", "\x01\x02\n0 17\n17 18\n");
  Seed(dir + "/record_index_fuzz", "none", "\x01");
  Seed(dir + "/record_stream_fuzz", "plain", records);
  Seed(dir + "/record_stream_fuzz", "gzip", Gzip(records) + Gzip(records));
  Seed(dir + "/record_stream_fuzz", "text",
       "\xef\xbb\xbf"
       "a\r\n\nb\rc");
  Seed(dir + "/record_stream_fuzz", "gzip_text", Gzip("a\r\n\nb\rc"));
  const std::string member = testing::TarFile("a/b.jpg", "abc");
  Seed(dir + "/tar_fuzz", "plain", member + member + testing::TarEnd());
  Seed(dir + "/tar_fuzz", "pax",
       testing::TarExtra('x', testing::PaxRecord("path", "long") +
                                  testing::PaxRecord("size", "3")) +
           member);
  Seed(dir + "/tar_fuzz", "gnu", testing::TarExtra('L', "long") + member);
  const std::string exif = testing::ExifData(6, /*big=*/true);
  Seed(dir + "/exif_fuzz", "data", exif);
  Seed(dir + "/exif_fuzz", "jpeg",
       testing::JpegWithExif("\xff\xd8", testing::ExifData(8)));
  Seed(dir + "/exif_fuzz", "png",
       "\x89PNG\r\n\x1a\n" + testing::PngChunk("eXIf", exif));
  Pictures(dir);
  Seed(dir + "/csv_fuzz", "numbers", "a,b,c\n1,2.5,x\n-3,1e300,\"y,\"\"z\"\n");
  Seed(dir + "/csv_fuzz", "text",
       "\xef\xbb\xbf"
       "\"a\r\nb\",c\r\n,\r\"\",d");
  Seed(dir + "/graph_text_fuzz", "graph", kGraph);
  Seed(dir + "/s3_xml_fuzz", "list", kObjectList);
  Seed(dir + "/s3_xml_fuzz", "error",
       "<Error><Code>SlowDown</Code><Message>a\nb</Message></Error>");
  Seed(dir + "/s3_xml_fuzz", "upload",
       "<InitiateMultipartUploadResult><UploadId>a</UploadId>"
       "</InitiateMultipartUploadResult>");
  Seed(dir + "/s3_xml_fuzz", "outcome",
       "<CompleteMultipartUploadResult><ETag>&quot;a&lt;</ETag>"
       "</CompleteMultipartUploadResult>");
  Seed(dir + "/profiles_fuzz", "config",
       "[profile \"a b\"]\nx = 1\ns3 =\n  y = 2\n\n[default]\n# c\nz: 3\n");
  Seed(dir + "/step_part_fuzz", "part",
       R"({"device": "/cpu:0", "incarnation": 1, "edges": 2, "parts": 2,)"
       R"( "deterministic": true, "precision": "fp32", "executor": "auto",)"
       R"( "seed": 1})"
       "\n" +
           std::regex_replace(kGraph, std::regex("\\?"), "2"));
  Seed(dir + "/step_part_fuzz", "counted",
       R"({"device": "/cpu:0", "incarnation": 1, "edges": 2, "parts": 2,)"
       R"( "deterministic": true, "precision": "fp32", "executor": "auto",)"
       R"( "seed": 1})"
       "\n"
       R"(table = Variable() {dtype = float32, shape = [5, 3]} @ /cpu:0
begun = RecvRowsStart() {key = "a", dtype = int64, shape = [4], edge = 0} @ /cpu:0
rows = RecvRowsWait(begun) {key = "a", edge = 0} @ /cpu:0
got = GatherCounted(table, rows, rows:1) @ /cpu:0
sent = SendStart(got, rows:1) {key = "b", edge = 1} @ /cpu:0
over = SendWait(sent) {key = "b", edge = 1} @ /cpu:0
)");
  Seed(dir + "/message_fuzz", "tensor",
       TextOf(dist::MessageOf(Tensor::Array<float>({2}, {1, 2})).Pack()));
  Seed(dir + "/message_fuzz", "order",
       TextOf(dist::OrderBody{1, 2, 3, 4}.Pack()));
  Seed(dir + "/questions_fuzz", "pace",
       TextOf(dist::PaceCall{1, 2, 3, {0, 0, true}}) + "\n" +
           TextOf(dist::Pace::Answer{.waiting = {0, 1}, .slowest = 2}) + "\n" +
           TextOf(dist::Pace::Answer{.reply = dist::Pace::Reply::kGo,
                                     .times = {{1, 2, 3}, {4, 5, 6}}}));
  Seed(dir + "/questions_fuzz", "admission", Contributions());
  Introductions(dir);
  Seed(dir + "/sharing_fuzz", "taken",
       Shared(std::string("\1\0", 2), dist::Offer{"$", "b", "c"}.Text(), 1));
  Seed(dir + "/sharing_fuzz", "given", Shared(std::string("\0\377", 2), "", 1));
  Seed(dir + "/sharing_fuzz", "refused",
       Shared(std::string("\2\377", 2), "", 0));
  Seed(dir + "/worker_fuzz", "calls", CallsOfMasters());
  Seed(dir + "/master_fuzz", "answers", AnswersOfWorkers());
  Ranks(dir);
  Seed(dir + "/launcher_fuzz", "words",
       std::string("\0o\3\0\0\0abcx\2\0\0\0\0\1", 16));
  Seed(dir + "/launcher_fuzz", "plan", "\1" + std::string(kPlan));
  // Of a number that no int holds.
  std::string far = kPlan;
  constexpr std::string_view kNear = "\"server\": -1";
  far.replace(far.find(kNear), kNear.size(), "\"server\": -1e53");
  Seed(dir + "/launcher_fuzz", "far plan", "\1" + far);
  Seed(dir + "/frame_fuzz", "hello", EncodedFrame({}));
  Seed(dir + "/hello_fuzz", "hello", EncodedHello());
  Seed(dir + "/control_fuzz", "suspect", SuspicionAndBeat());
  Seed(dir + "/roster_fuzz", "meet",
       dist::Encoded(dist::Meeting{
           .port = 4000, .done = 7, .build = "1/avx2", .why = "gone"}));
  Seed(dir + "/roster_fuzz", "go",
       dist::Encoded(dist::Assembly{2, 4000, {3, 0, 1}, {1, 0, 0}, "a"}));
  Seed(dir + "/handshake_fuzz", "uri", "sluice://job/worker/3");
  if (dist::HasTls()) {
    const auto own = dist::Authority::Create("job")
                         .ValueOrThrow()
                         .Issue("worker", 3, std::chrono::hours(1))
                         .ValueOrThrow();
    Seed(dir + "/handshake_fuzz", "credentials", dist::TextOf(own));
    Seed(dir + "/handshake_fuzz", "greeting",
         TextOf(testing::TlsGreeting(*dist::Tls::Create(own).ValueOrThrow())));
  }
  Seed(dir + "/frame_fuzz", "reduce",
       EncodedFrame(
           dist::FrameOf(dist::FrameKind::kReduce, DType::kFloat32, 100)));
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIR\n");
    return 2;
  }
  try {
    sluice::WriteSeeds(argv[1]);
    return 0;
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
