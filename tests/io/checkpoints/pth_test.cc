// .pth files: those of torch.save beside what PyTorch holds (tests/golden/
// pth.safetensors), and truncated, damaged and hostile ones.
#include "io/checkpoints/pth.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "io/checkpoints/pickle.h"
#include "io/checkpoints/strided_view.h"
#include "io/files/zip.h"
#include "tests/places.h"
#include "tests/support/error_text.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/pth_bytes.h"

namespace sluice {
namespace {

using namespace std::string_literals;  // NOLINT: zeros in text

using testing::Bytes;
using testing::Contains;
using testing::FaultFileSystem;
using testing::PickledDict;
using testing::PickledInt;
using testing::PickledTensor;
using testing::PickledText;
using testing::PthFile;
using testing::StoredEntry;
using testing::StoredZip;

constexpr char kWeights[] = SLUICE_SOURCE_DIR "/tests/golden/weights.pth";

using Named = std::map<std::string, Tensor>;

const Named& Golden() {
  static const Named kTensors = [] {
    Named tensors;
    for (NamedTensor& t :
         ReadSafetensors(SLUICE_SOURCE_DIR "/tests/golden/pth.safetensors")
             .ValueOrThrow()
             .tensors) {
      tensors[t.name] = std::move(t.tensor);
    }
    return tensors;
  }();
  return kTensors;
}

std::string GoldenFile(const std::string& name) {
  const Tensor& file = Golden().at(name + "/file");
  return {reinterpret_cast<const char*>(file.data<uint8_t>()), file.bytes()};
}

// What a golden file holds.
Named Expected(const std::string& name) {
  Named expected;
  for (const auto& [key, tensor] : Golden()) {
    if (!key.starts_with(name + "/") || key == name + "/file") continue;
    expected[key.substr(name.size() + 1)] = tensor;
  }
  return expected;
}

bool Same(const std::vector<NamedTensor>& tensors, const Named& expected) {
  if (tensors.size() != expected.size()) return false;
  for (const NamedTensor& t : tensors) {
    const auto found = expected.find(t.name);
    if (found == expected.end() || !found->second.BitEqual(t.tensor)) {
      MESSAGE(t.name << ": " << t.tensor.ToString());
      return false;
    }
  }
  return true;
}

// 0, 1, 2, ... as float32.
std::string Floats(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

// A file whose state dict has one tensor, "a".
Result<std::vector<NamedTensor>> ParseOne(const PickledTensor& tensor,
                                          const std::string& storage) {
  return ParsePth(PthFile(PickledDict(tensor.Text()), {{"0", storage}}), "f");
}

// The error for a file of this pickle.
Status ErrorOf(const std::string& pickle) {
  return ParsePth(PthFile(pickle, {{"0", Floats(6)}}), "f").status();
}

TEST_CASE("a checkpoint of PyTorch's") {
  const auto tensors = ReadPth(kWeights);
  REQUIRE_MESSAGE(tensors.ok(), tensors.status().message());
  CHECK(Same(*tensors, Expected("weights")));
  CHECK((*tensors)[0].name == "conv.weight");
  CHECK((*tensors)[0].tensor.shape() == Shape{3, 2, 3, 3});
  CHECK((*tensors)[5].name == "bn.num_batches_tracked");
  CHECK((*tensors)[5].tensor.dtype() == DType::kInt64);
  CHECK(tensors->back().name == "noted_parameter");
}

TEST_CASE("other files of PyTorch's") {
  for (const char* name : {"state_dict", "model", "protocol3", "protocol4",
                           "protocol5", "whole", "none"}) {
    CAPTURE(name);
    const auto tensors = ParsePth(GoldenFile(name), name);
    REQUIRE_MESSAGE(tensors.ok(), tensors.status().message());
    CHECK(Same(*tensors, Expected(name)));
  }
}

TEST_CASE("what cannot be read is named") {
  const std::map<std::string, std::string> wanted = {
      {"module", "holds an object of torch.nn.modules.container.Sequential"},
      {"tensor", "holds an object of torch._utils._rebuild_tensor_v2"},
      {"list", "holds a list, not a state dict; save model.state_dict()"},
      {"no_tensors", "a dict without tensors"},
      {"int16", "tensor 'a': storage of type torch.ShortStorage"},
      {"uint16", "tensor 'a': torch.uint16 is not supported"},
      {"complex", "torch.ComplexFloatStorage"},
      {"sparse", "tensor 'a': torch._utils._rebuild_sparse_tensor"},
      {"negative", "a lazy conjugate or negative"},
      {"nine_dimensions", "9 dimensions, at most 8"},
      {"legacy", "the format of PyTorch before 1.6"}};
  for (const auto& [name, text] : wanted) {
    CAPTURE(name);
    const Status status = ParsePth(GoldenFile(name), "my.pth").status();
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(Contains(status.message(), text));
    CHECK(status.message().starts_with("'my.pth': "));
  }
  const Status status = ParsePth(GoldenFile("without_checksums"), "f").status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(Contains(status.message(), "saved without checksums"));
}

TEST_CASE("files are known by their first bytes") {
  FaultFileSystem files;
  const std::string bytes = *FileSystem::Posix().Read(kWeights);
  CHECK(IsPth(bytes.substr(0, 4)));
  CHECK_FALSE(IsPth("PK\3"));
  CHECK_FALSE(IsPth(std::string("\x80\2\x8a\x0al", 5)));
  CHECK(ReadPth("none", files).status().code() == Code::kNotFound);
  REQUIRE(files.WriteAtomically("w", bytes).ok());
  CHECK(Same(*ReadPth("w", files), Expected("weights")));
  const Status status = ParsePth("hello", "h.pth").status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(Contains(status.message(), "'h.pth': not a file of torch.save"));
}

TEST_CASE("truncated at every byte is an error that names the file") {
  const std::string bytes = *FileSystem::Posix().Read(kWeights);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Status status = ParsePth(bytes.substr(0, n), "my.f").status();
    CHECK(status.code() == Code::kDataLoss);
    CHECK(status.message().find("my.f") != std::string::npos);
  }
  CHECK(ParsePth(bytes + "x", "f").status().code() == Code::kDataLoss);
}

TEST_CASE("changed bytes are an error or change nothing") {
  const std::string bytes = *FileSystem::Posix().Read(kWeights);
  const Named expected = Expected("weights");
  std::mt19937 random(1);
  const auto check = [&](const std::string& bad) {
    const auto tensors = ParsePth(bad, "f");
    if (tensors.ok()) return Same(*tensors, expected);
    const Code code = tensors.status().code();
    return code == Code::kDataLoss || code == Code::kUnimplemented;
  };
  for (int i = 0; i < 3000; ++i) {
    std::string bad = bytes;
    const size_t at = random() % bytes.size();
    bad[at] ^= static_cast<char>(1 + random() % 255);
    CAPTURE(at);
    CHECK(check(bad));
  }
  // Every byte of the directory, and several at once.
  for (size_t at = bytes.find("PK\1\2"); at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(~bad[at]);
    CAPTURE(at);
    CHECK(check(bad));
    for (int i = 0; i < 4; ++i) bad[random() % bytes.size()] ^= 1;
    CHECK(check(bad));
  }
}

TEST_CASE("a tensor made by hand") {
  const auto tensors = ParseOne({}, Floats(6));
  REQUIRE_MESSAGE(tensors.ok(), tensors.status().message());
  const Tensor wanted = Tensor::Array<float>({2, 3}, {0, 1, 2, 3, 4, 5});
  CHECK((*tensors)[0].name == "a");
  CHECK((*tensors)[0].tensor.BitEqual(wanted));
  const auto transposed =
      ParseOne({.offset = 1, .sizes = {2, 2}, .strides = {1, 3}}, Floats(6));
  REQUIRE(transposed.ok());
  CHECK((*transposed)[0].tensor.BitEqual(
      Tensor::Array<float>({2, 2}, {1, 4, 2, 5})));
  // One dimension may have any stride.
  CHECK(ParseOne({.sizes = {1, 6},
                  .strides = {std::numeric_limits<int64_t>::max(), 1}},
                 Floats(6))
            .ok());
}

TEST_CASE("tensors that do not fit their storage") {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const int64_t kThird = int64_t{1} << 62;
  for (const PickledTensor& bad : std::vector<PickledTensor>{
           {.elements = 7},
           {.elements = 5},
           {.elements = -1},
           {.elements = kHuge},
           {.offset = 1},
           {.offset = -1},
           {.offset = kHuge},
           {.offset = 7, .sizes = {0}, .strides = {1}},
           {.offset = 6, .sizes = {}, .strides = {}},
           {.sizes = {2, 4}},
           {.sizes = {3, 3}},
           {.sizes = {2, -3}},
           {.sizes = {kHuge, kHuge}, .strides = {0, 0}},
           {.sizes = {kHuge, 0}, .strides = {1, 1}},
           {.sizes = {2, 3}, .strides = {-3, 1}},
           {.sizes = {2, 3}, .strides = {kHuge, 1}},
           {.sizes = {3, 3, 3}, .strides = {kThird, kThird, 1}},
           {.sizes = {2, 3}, .strides = {3}},
           {.key = "1"},
           {.type = "DoubleStorage"},
           {.type = "BoolStorage",
           .elements = 24,
           .sizes = {24},
           .strides = {1}}}) {
    CAPTURE(bad.Text());
    const Status status = ParseOne(bad, Floats(6)).status();
    CHECK(status.code() == Code::kDataLoss);
    CHECK(Contains(status.message(), "'f': tensor 'a': "));
  }
}

TEST_CASE("a few bytes do not become many tensors") {
  // One element as a terabyte, and 100 times the same mebibyte.
  CHECK(ParseOne({.sizes = {1 << 20, 1 << 18}, .strides = {0, 0}}, Floats(6))
            .status()
            .code() == Code::kUnimplemented);
  std::string pickle = "}(";
  const PickledTensor mebibyte{
      .elements = 1 << 18, .sizes = {1 << 18}, .strides = {1}};
  for (int i = 0; i < 100; ++i) {
    pickle += PickledText(fmt::format("{}", i)) + mebibyte.Text();
  }
  const Status status =
      ParsePth(PthFile(pickle + "u.", {{"0", Floats(1 << 18)}}), "f").status();
  CHECK(status.code() == Code::kUnimplemented);
  CHECK(Contains(status.message(), "16 times the file's bytes"));
}

TEST_CASE("hostile pickles") {
  const std::string million(1'000'000, '(');
  const std::string entry = PickledText("a") + PickledTensor().Text();
  const std::string twice = "}(" + entry + entry + "u.";
  for (const std::string& pickle : std::vector<std::string>{
           "", ".", "(.", "}", "}(.", "0", "1", "t", "a", "e", "]a", "s", "}s",
           "}Ns", "}(Nu", "u", "NR.", "NNR.", "}NR.", ")R", "N)R.", "Nb",
           "]Nb.", "}Nb.", "q", "q\1", "h\1", "]h", "Q", "\x85", "\x86", "\x93",
           "NN\x93.", "(Nd", "NNNs", "cno line", "cmodule\nno line", "X\1",
           std::string("X\xff\xff\xff\xffxx", 7),
           std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", 9),
           std::string("\x8b\xff\xff\xff\xff", 5), "\x8a\xff", "G123", "J12",
           "]r\xff\xff\xff\xff", "\x95", million, "}" + million,
           million + std::string(999'999, '1') + "]s.",
           // Duplicate names, and what torch's functions are not called with.
           twice, PickledDict("ctorch._utils\n_rebuild_tensor_v2\n)R"),
           PickledDict("ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR"),
           PickledDict("ctorch._utils\n_rebuild_tensor_v2\n(" +
                       PickledTensor().Storage() + "K\0)NN)tR"s),
           PickledDict("ctorch._tensor\n_rebuild_from_type_v2\n(NNNNtR")}) {
    CAPTURE(pickle.substr(0, 100));
    CHECK(ErrorOf(pickle).code() == Code::kDataLoss);
  }
  for (const std::string& pickle : std::vector<std::string>{
           // Containing themselves, many times over.
           "]q\0(h\0h\0h\0e."s, "}q\0X\1\0\0\0ah\0s."s,
           "}q\0"s + PickledText("state_dict") + "h\0s."s, million + "t.",
           million + std::string(1'000'000, 't') + ".",
           std::string(1'000'000, ')') + std::string(999'999, '\x86') + ".",
           // Unknown instructions, protocols, functions and classes.
           "2.", "I1\n.", "\x80\6N.", "\xff", "cos\nsystem\n(X\2\0\0\0lstR."s,
           PickledDict("ctorch._utils\n_rebuild_parameter\n)R"),
           PickledDict(PickledTensor{.function = "_rebuild_new"}.Text())}) {
    CAPTURE(pickle.substr(0, 100));
    CHECK(ErrorOf(pickle).code() == Code::kUnimplemented);
  }
}

TEST_CASE("what is no tensor is passed over, whatever it is") {
  std::string nested = "N";
  for (int i = 0; i < 20; ++i) nested += "\x94h" + Bytes(i, 1) + "\x86";
  for (const std::string& value :
       std::vector<std::string>{"N",
                                "K\1",
                                "\x88",
                                "G12345678",
                                "]q\7(h\7h\7e",
                                ")",
                                "}",
                                "\x8f",
                                "(NN\x91",
                                "(NNl",
                                "(NNd",
                                "cos\nsystem\n",
                                "cos\nsystem\n(" + PickledText("ls") + "tR",
                                "cargparse\nNamespace\n)\x81}b",
                                "cmy\nClass\n)}\x92(NNu(NNeNaNNs",
                                "cmy\nClass\n)R)R",
                                PickledText("my") + PickledText("it") + "\x93",
                                "B\2\0\0\0\xff\xff"s,
                                "C\1\xff",
                                "U\1x",
                                "T\1\0\0\0x"s,
                                "\x8a\xff" + std::string(255, '9'),
                                "\x8b\2\0\0\0ab"s,
                                "M12",
                                "NQ",
                                "N(N1",
                                "N(N00",
                                nested,
                                "ctorch\nFloatStorage\n",
                                PickledTensor().Storage()}) {
    CAPTURE(value);
    const auto tensors = ParsePth(
        PthFile("\x80\2}(" + PickledText("other") + value + PickledInt(7) +
                    PickledTensor{.key = "none"}.Text() + PickledText("a") +
                    PickledTensor().Text() + "u.",
                {{"0", Floats(6)}}),
        "f");
    REQUIRE_MESSAGE(tensors.ok(), tensors.status().message());
    REQUIRE(tensors->size() == 1);
    CHECK((*tensors)[0].tensor.At(5) == 5);
  }
}

TEST_CASE("messages are one line") {
  const Status status = ErrorOf("}" + PickledText("a\nb") +
                                PickledTensor{.elements = 9}.Text() + "s.");
  CHECK(Contains(status.message(), "tensor 'a?b'"));
}

TEST_CASE("the byte order") {
  const std::string pickle = PickledDict(PickledTensor().Text());
  const auto code = [&](const std::string& order) {
    return ParsePth(PthFile(pickle, {{"0", Floats(6)}}, order), "f")
        .status()
        .code();
  };
  CHECK(code("big") == Code::kUnimplemented);
  CHECK(code("litle") == Code::kDataLoss);
  // Before 2.1 there was none.
  CHECK(ParsePth(StoredZip({{"x/data.pkl", pickle}, {"x/data/0", Floats(6)}}),
                 "f")
            .ok());
}

TEST_CASE("archives of 64 bits, and with a comment") {
  const std::vector<StoredEntry> entries = {{"a", "hello"}, {"b", ""}};
  for (const std::string& comment :
       {std::string(), std::string("PK\5\6 end"), std::string(65535, 'c')}) {
    for (const bool zip64 : {false, true}) {
      const std::string bytes = StoredZip(entries, zip64, comment);
      const auto archive = ZipArchive::Open(bytes);
      REQUIRE_MESSAGE(archive.ok(), archive.status().message());
      REQUIRE(archive->entries().size() == 2);
      CHECK(archive->entries()[1].name == "b");
      CHECK(*archive->Read("a") == "hello");
      CHECK((*archive->Read("b")).empty());
      CHECK(archive->Read("c").status().code() == Code::kDataLoss);
    }
  }
  CHECK(ZipArchive::Open(StoredZip({})).ok());
  const std::string bytes = StoredZip(entries, true);
  for (size_t n = 0; n < bytes.size(); ++n) {
    CHECK_FALSE(ZipArchive::Open(bytes.substr(0, n)).ok());
  }
}

TEST_CASE("archives that are refused") {
  const auto error = [](const std::vector<StoredEntry>& entries) {
    const std::string bytes = StoredZip(entries);
    const auto archive = ZipArchive::Open(bytes);
    return archive.ok() ? archive->Read("a").status() : archive.status();
  };
  CHECK(error({{"a", "x", 8}}).code() == Code::kUnimplemented);
  CHECK(Contains(error({{"a", "x", 8}}).message(), "compressed (method 8)"));
  CHECK(error({{"a", "x", 0, 1}}).code() == Code::kUnimplemented);
  CHECK(error({{"a", "x", 0, 0x808}}).ok());
  CHECK(error({{"a", "x"}, {"a", "x"}}).code() == Code::kDataLoss);
  // Those that are not read may be anything.
  CHECK(error({{"b", "x", 8, 1}, {"a", "x"}}).ok());

  const auto changed = [](size_t from_end, const std::string& to) {
    std::string bytes = StoredZip({{"a", "xyz"}, {"b", "uv"}});
    bytes.replace(bytes.size() - from_end, to.size(), to);
    return ZipArchive::Open(bytes).status().code();
  };
  CHECK(changed(22, "PK") == Code::kOk);
  CHECK(changed(18, "\1") == Code::kUnimplemented);  // disks
  CHECK(changed(12, "\1") == Code::kDataLoss);       // entries
  CHECK(changed(12, "\3") == Code::kDataLoss);
  CHECK(changed(10, "\xff") == Code::kDataLoss);  // the directory's bytes
  CHECK(changed(6, "\1") == Code::kDataLoss);     // and place
}

TEST_CASE("entries within others are refused") {
  // The second entry's local header is the first one's data.
  const std::string inner = StoredZip({{"b", "payload"}});
  const std::string local = inner.substr(0, inner.find("PK\1\2"));
  std::string bytes = StoredZip({{"a", local}, {"b", "payload"}});
  const size_t directory = bytes.find("PK\1\2");
  const size_t second = bytes.find("PK\1\2", directory + 1);
  bytes.replace(second + 42, 4, Bytes(bytes.find(local, 4), 4));
  const Status status = ZipArchive::Open(bytes).status();
  CHECK(status.code() == Code::kDataLoss);
  CHECK(Contains(status.message(), "'a' and 'b' overlap"));
}

TEST_CASE("values of a pickle") {
  const std::string bytes =
      "(K\7M\1\1J\xff\xff\xff\xff\x8a\0\x8a\1\xff\x8a\2\0\1N\x88t."s;
  const auto pickle = ParsePickle(bytes);
  REQUIRE(pickle.ok());
  std::vector<int64_t> integers;
  for (const Pickle::Id id : (*pickle)[pickle->root].items) {
    integers.push_back((*pickle)[id].integer);
  }
  CHECK(integers == std::vector<int64_t>{7, 257, -1, 0, -1, 256, 0, 1});
  const Status status = ParsePickle("NN}s.").status();
  CHECK(Contains(status.message(), "byte 3 of the pickle: "));
}

TEST_CASE("a pickle of more bytes than are read") {
  std::string bytes = "\x80\2N.";
  bytes.resize(kMaxPickleBytes, '.');
  CHECK(ParsePickle(bytes).status().code() != Code::kUnimplemented);
  bytes += '.';
  CHECK(ParsePickle(bytes).status().code() == Code::kUnimplemented);
}

TEST_CASE("views of every width are gathered") {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    CAPTURE(NameOf(dtype));
    Tensor source(DType::kInt64, {24});
    for (int64_t e = 0; e < 24; ++e) {
      source.data<int64_t>()[e] = dtype == DType::kBool ? e * 5 % 3 == 0 : e;
    }
    source = source.Cast(dtype);
    // At an odd address, as in a file.
    const std::string bytes =
        "x" +
        std::string(static_cast<const char*>(source.raw()), source.bytes());
    const StridedView view{.dtype = dtype,
                           .storage = std::string_view(bytes).substr(1),
                           .shape = {2, 3, 1, 2},
                           .strides = {2, 8, 99, 3},
                           .offset = 1};
    REQUIRE(CheckView(view).ok());
    const Tensor gathered = Gather(view).ValueOrThrow();
    for (int64_t e = 0; e < 12; ++e) {
      const int64_t at = 1 + e / 6 * 2 + e / 2 % 3 * 8 + e % 2 * 3;
      CHECK(gathered.At(e) == source.At(at));
    }
  }
}

}  // namespace
}  // namespace sluice
