// Memory that runs out, at each large allocation in turn, in functions that
// return a Status or Result: it is their error, and they throw nothing.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dist/cluster/message.h"
#include "engine/allocate.h"
#include "engine/device.h"
#include "graph/builder.h"
#include "graph/compile/describe_device.h"
#include "graph/compile/evaluate.h"
#include "graph/compile/extract.h"
#include "graph/compile/step_part.h"
#include "graph/text/text.h"
#include "io/cache/disk_cache.h"
#include "io/cache/example_bytes.h"
#include "io/checkpoints/checkpoint.h"
#include "io/checkpoints/pth.h"
#include "io/checkpoints/safetensors.h"
#include "io/files/file.h"
#include "io/files/record.h"
#include "io/images/image.h"
#include "io/images/jpeg.h"
#include "io/images/png.h"
#include "io/records/record_files.h"
#include "io/records/record_stream.h"
#include "io/records/tf_example.h"
#include "io/records/tf_sequence_example.h"
#include "io/sources/cifar.h"
#include "io/sources/datasets.h"
#include "io/sources/idx.h"
#include "io/summaries/event_file.h"
#include "tests/support/pth_bytes.h"
#include "tests/support/scarce_memory.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::allocations_left;
using testing::TemporaryFolder;

constexpr size_t kLarge = size_t{16} << 10;  // bytes
constexpr int64_t kFloats = 16 << 10;        // of a tensor, which is larger

// What the functions below are given.
class Inputs {
 public:
  Tensor floats = Tensor::Full(DType::kFloat32, {kFloats}, 0.5);
  Tensor picture = Tensor::Full(DType::kUInt8, {96, 80, 3}, 7);
  Example example = {{"x", floats}};
  std::string text = std::string(4 * kFloats, 'x');

  // A file of these bytes.
  std::string File(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

using Call = std::function<Status()>;

// A call of each function. Which images and records a build knows is its own.
std::map<std::string, Call> CallsOfFiles(const Inputs& in) {
  std::map<std::string, Call> calls;
  const std::string whole = in.File("whole", in.text);
  calls["FileSystem::Read"] = [=] {
    return FileSystem::Posix().Read(whole).status();
  };
  const std::string idx =
      in.File("idx", std::string("\0\0\x08\x01\0\1\0\0", 8) + in.text);
  calls["ReadIdx"] = [=] { return ReadIdx(idx).status(); };
  const std::string cifar = in.File("cifar", std::string(20 * 3073, '\1'));
  calls["ReadCifar10"] = [=] { return ReadCifar10({cifar}).status(); };
  const std::string tensors = in.path("tensors");
  ThrowIfError(WriteSafetensors(
      tensors, std::vector<NamedTensor>{{"a", in.floats}, {"b", in.floats}}));
  calls["ReadSafetensors"] = [=] { return ReadSafetensors(tensors).status(); };
  testing::PickledTensor pickled;
  pickled.elements = kFloats;
  pickled.sizes = {kFloats / 2, 2};
  pickled.strides = {1, kFloats / 2};
  const std::string pth =
      in.File("pth", testing::PthFile(testing::PickledDict(pickled.Text()),
                                      {{"0", std::string(4 * kFloats, '\0')}}));
  calls["ReadPth"] = [=] { return ReadPth(pth).status(); };
  std::string bytes;
  AppendExampleBytes(in.example, &bytes);
  // Not an older one in its place, nor, for lack of its metric, as the best.
  const std::string folder = in.path("checkpoints");
  {
    CheckpointManager saved = CheckpointManager::Open(folder).ValueOrThrow();
    for (const int64_t step : {1, 2}) {
      Checkpoint checkpoint;
      checkpoint.state.step = step;
      checkpoint.state.metric = static_cast<double>(step);
      checkpoint.state.dataset_position = in.text;
      checkpoint.tensors = {{"a", in.floats}};
      (void)saved.Save(checkpoint).ValueOrThrow();
    }
  }
  calls["CheckpointManager::RestoreNewest"] = [=]() -> Status {
    const auto saved = CheckpointManager::ForReading(folder);
    SLUICE_ASSIGN_OR_RETURN(const auto newest, saved.RestoreNewest());
    return newest->checkpoint.state.step == 2 ? Status() : Internal("older");
  };
  calls["CheckpointManager::BestStep"] = [=]() -> Status {
    const auto saved = CheckpointManager::ForReading(folder);
    SLUICE_ASSIGN_OR_RETURN(const auto best, saved.BestStep());
    return best == 2 ? Status() : Internal("another one");
  };
  calls["ParseExampleBytes"] = [=] {
    return ParseExampleBytes(bytes).status();
  };
  calls["Stack"] = [=, &in] {
    return Stack(std::vector<Example>{in.example, in.example}).status();
  };
  std::string records;
  AppendRecord(in.text, &records);
  const std::string record = in.File("records", records);
  calls["RecordFiles::Read"] = [=]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const auto files, RecordFiles::Open({record}));
    return files->Read(0).status();
  };
  calls["RecordFileStream::Next"] = [=]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const auto stream, RecordFileStream::Open(record));
    std::string payload;
    return stream->Next(&payload).status();
  };
  return calls;
}

// Of iterators, whose making is not looked at, since it may throw.
std::map<std::string, Call> CallsOfIterators() {
  // A shuffle that reads its elements again to restore them.
  const Dataset rows =
      datasets::FromTensors(
          {{"x", Tensor::Zeros(DType::kFloat32, {8, kFloats})}})
          .Filter([](const Example&) { return true; })
          .Shuffle(4, 1)
          .Batch(2);
  const auto on_iterator = [rows](auto use) -> Call {
    return [=] {
      const int64_t left = std::exchange(allocations_left, -1);
      Iterator batches = rows.MakeIterator();
      Example batch;
      (void)batches.Next(&batch).ValueOrThrow();
      const std::string position = batches.SavePosition();
      allocations_left = left;
      return use(batches, position);
    };
  };
  return {{"Iterator::Next", on_iterator([](Iterator& batches, const auto&) {
             Example batch;
             return batches.Next(&batch).status();
           })},
          {"Iterator::NextEpoch",
           on_iterator([](Iterator& batches, const auto&) -> Status {
             SLUICE_RETURN_IF_ERROR(batches.NextEpoch());
             Example batch;
             return batches.Next(&batch).status();
           })},
          {"Iterator::Restore",
           on_iterator([](Iterator& batches, const auto& position) {
             return batches.Restore(position);
           })}};
}

std::map<std::string, Call> CallsOfImages([[maybe_unused]] const Inputs& in) {
  std::map<std::string, Call> calls;
  std::vector<std::pair<std::string, std::string>> images;
#if SLUICE_HAVE_PNG
  images.emplace_back("PNG", EncodePng(in.picture).ValueOrThrow());
  calls["EncodePng"] = [=, &in] { return EncodePng(in.picture).status(); };
  const Tensor grey = in.picture.Cast(DType::kFloat32);
  calls["EventWriter::Image"] = [=, &in]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const auto writer,
                            EventWriter::Open(in.path("events")));
    return writer->Image("x", 0, grey);
  };
#endif
#if SLUICE_HAVE_JPEG
  // Turned, so that it is decoded as a whole.
  images.emplace_back("JPEG", EncodeJpeg(in.picture, 90, 1).ValueOrThrow());
  images.emplace_back("turned", EncodeJpeg(in.picture, 90, 6).ValueOrThrow());
#endif
  for (const auto& [name, bytes] : images) {
    const std::string image = bytes;
    const DecodeOptions options = {.exif = true};
    calls["DecodeImage, " + name] = [=] {
      return DecodeImage(image, "image", options).status();
    };
    calls["DecodeResizeAndCrop, " + name] = [=] {
      return DecodeResizeAndCrop(image, "image", 70, 80, options).status();
    };
    calls["DecodeRandomResizedCrop, " + name] = [=] {
      return DecodeRandomResizedCrop(image, "image", 80, 1, options).status();
    };
  }
  return calls;
}

std::map<std::string, Call> CallsOfExamples([[maybe_unused]] const Inputs& in) {
  std::map<std::string, Call> calls;
#if SLUICE_HAVE_PROTOBUF
  const std::vector<std::pair<std::string, TfFeature>> features = {
      {"x", std::vector<float>(kFloats, 0.5F)},
      {"bytes", std::vector<std::string>{in.text}}};
  const std::string bytes = EncodeTfExample(features).ValueOrThrow();
  const std::vector<FeatureSpec> specs = {{"x", DType::kFloat32, {kUnknown}},
                                          {"bytes", DType::kUInt8, {kUnknown}}};
  calls["ParseTfExample"] = [=] {
    return ParseTfExample(bytes, specs).status();
  };
  calls["ParseTfExamples"] = [=] {
    return ParseTfExamples(std::vector<std::string_view>{bytes, bytes}, specs)
        .status();
  };
  const std::string sequence =
      EncodeTfSequenceExample(
          features,
          std::vector<std::pair<std::string, TfFeatureList>>{
              {"steps", {std::vector<float>(kFloats, 0.5F)}}})
          .ValueOrThrow();
  calls["ParseTfSequenceExample"] = [=] {
    return ParseTfSequenceExample(
               sequence, specs,
               std::vector<FeatureSpec>{{"steps", DType::kFloat32, {kUnknown}}})
        .status();
  };
#endif
  return calls;
}

std::map<std::string, Call> CallsOfGraphs(const Inputs& in) {
  std::map<std::string, Call> calls;
  calls["AllocateTensor"] = [] {
    return AllocateTensor(DType::kFloat32, {kFloats}).status();
  };
  calls["AllocateBytes"] = [] { return AllocateBytes(4 * kFloats).status(); };
  const dist::Message message = dist::MessageOf(in.floats);
  calls["TensorOf"] = [=] { return dist::TensorOf(message).status(); };

  Tensor ramp(DType::kFloat32, {kFloats});
  for (int64_t i = 0; i < kFloats; ++i) {
    ramp.data<float>()[i] = static_cast<float>(i);
  }
  for (const auto& [name, value] :
       {std::pair("filled", in.floats), std::pair("base64", ramp)}) {
    Graph graph;
    graph.Constant(value);
    const std::string text = PrintGraph(graph);
    calls[std::string("ParseGraph, ") + name] = [=] {
      return ParseGraph(text).status();
    };
  }
  std::string numbers = "0";
  for (int i = 1; i < kFloats; ++i) numbers += ", 1";
  const std::string text = fmt::format(
      "c = Const() {{value = float32[{}] {{{}}}}}\n", kFloats, numbers);
  calls["ParseGraph, numbers"] = [=] { return ParseGraph(text).status(); };

  // Two that are computed, one that is given to an op which changes it.
  const auto graph = std::make_shared<Graph>();
  const Output x = graph->Placeholder("x", DType::kFloat32, {kFloats});
  const Output v = graph->Variable("v", Zeros({kFloats}));
  const Output sum = x + v, assigned = Assign(v, x);
  for (const Output& fetch : {sum, assigned}) {
    calls[std::string("EvaluateNode, ") + fetch.node().op().name] =
        [=, &in, owner = graph] {
          return EvaluateNode(fetch.node(), {in.floats, in.floats}).status();
        };
  }

  // Constants that are folded, and cut into parts.
  const auto model = std::make_shared<Graph>();
  const Output c = model->Constant(in.floats);
  const Output far = Sqrt(Exp(c) + c);
  far.node().set_device("/cpu:1");
  calls["PartitionStep"] = [far, model]() -> Status {
    StepRequest request;
    request.fetches = {far};
    SLUICE_ASSIGN_OR_RETURN(auto step, ExtractStep(*model, request));
    passes::Context context;
    for (int i = 0; i < 2; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const auto device,
                              Device::Open({DeviceType::kCpu, i}));
      context.devices.push_back(DescribeDevice(*device));
    }
    context.fold = FoldNode;
    return PartitionStep(std::move(step), context, {}).status();
  };
  return calls;
}

// Whether an allocation after the nth failed.
bool FailsAt(int64_t nth, const Call& call) {
  Status status;
  bool thrown = false;
  testing::scarce_bytes = kLarge;
  allocations_left = nth;
  try {
    status = call();
  } catch (...) {
    thrown = true;
  }
  const bool reached = allocations_left < 0;
  allocations_left = -1;
  CAPTURE(nth);
  CAPTURE(status.ToString());
  CHECK_FALSE(thrown);
  CHECK(status.ok() == !reached);
  if (reached) CHECK(status.code() == Code::kResourceExhausted);
  return reached;
}

TEST_CASE("no memory for what is read or computed is an error, not thrown") {
  const Inputs in;
  for (const auto& calls :
       {CallsOfFiles(in), CallsOfIterators(), CallsOfImages(in),
        CallsOfExamples(in), CallsOfGraphs(in)}) {
    for (const auto& [name, call] : calls) {
      CAPTURE(name);
      REQUIRE(call().ok());
      int64_t failed = 0;
      while (failed < 1000 && FailsAt(failed, call)) ++failed;
      CHECK(failed > 0);
      CHECK(failed < 1000);
    }
  }
}

// A checkpoint may be most of what there is memory for.
TEST_CASE("tensors of a file take no memory beside their own") {
  const Inputs in;
  const std::string tensors = in.path("one"), checkpoint = in.path("saved");
  ThrowIfError(
      WriteSafetensors(tensors, std::vector<NamedTensor>{{"a", in.floats}}));
  Checkpoint saved;
  saved.tensors = {{"a", in.floats}};
  ThrowIfError(WriteCheckpoint(checkpoint, saved));
  const auto large_allocations = [](const Call& call) {
    testing::scarce_bytes = kLarge;
    allocations_left = 100;
    const Status status = call();
    const int64_t left = std::exchange(allocations_left, -1);
    REQUIRE(status.ok());
    return 100 - left;
  };
  CHECK(large_allocations([&] { return ReadSafetensors(tensors).status(); }) ==
        1);
  CHECK(large_allocations(
            [&] { return ReadCheckpoint(checkpoint).status(); }) == 1);
}

// Which is not what a damaged record is.
TEST_CASE("a cache forgets no example that there was no memory for") {
  const Inputs in;
  const auto cache = DiskCache(in.path("cache"), "key", uint64_t{1} << 30);
  cache->Add(5, in.example);
  int64_t nth = 0;
  for (bool reached = true; reached; ++nth) {
    testing::scarce_bytes = kLarge;
    allocations_left = nth;
    bool found = false;
    try {
      found = cache->Find(5).has_value();
    } catch (const std::exception&) {
      found = false;
    }
    reached = allocations_left < 0;
    allocations_left = -1;
    CHECK(found == !reached);
    CHECK(cache->Find(5).has_value());
  }
  CHECK(nth > 1);
}

}  // namespace
}  // namespace sluice
