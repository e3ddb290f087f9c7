// Any bytes make records or an error, and any payload a tf.Example, a
// tf.SequenceExample or an error: as a file, whose checksums stop most inputs,
// and as the payload of one record. What was read survives being written and
// read again.
#include <string_view>

#include "io/files/record.h"
#include "io/records/tf_example.h"
#include "io/records/tf_sequence_example.h"

namespace sluice {
namespace {

using Features = std::vector<std::pair<std::string, TfFeature>>;

// The features that have a kind.
Features FeaturesOf(const TfExample& example) {
  Features features;
  for (const std::string& name : example.names()) {
    const auto bytes = example.BytesList(name);
    const auto floats = example.Floats(name);
    const auto ints = example.Ints(name);
    if (bytes.ok() && floats.ok()) continue;  // it has none
    if (bytes.ok()) {
      features.emplace_back(
          name, std::vector<std::string>(bytes->begin(), bytes->end()));
    } else if (floats.ok()) {
      features.emplace_back(name, *floats);
    } else {
      SLUICE_CHECK(ints.ok());
      features.emplace_back(name, *ints);
    }
  }
  return features;
}

void CheckTensors(std::string_view bytes, const TfExample& example) {
  for (const std::string& name : example.names()) {
    for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kUInt8}) {
      const FeatureSpec spec{name, dtype, {kUnknown, 2}, 0};
      const auto tensors = ParseTfExample(bytes, {&spec, 1});
      if (!tensors.ok()) continue;
      const Tensor& tensor = (*tensors)[name];
      SLUICE_CHECK(tensor.bytes() <= 8 * bytes.size());
      if (tensor.elements() > 0) (void)tensor.At(tensor.elements() - 1);
    }
  }
}

// A batch is what each of its examples is.
void CheckBatch(std::string_view bytes, const FeatureSpec& spec) {
  const std::string_view batch[] = {bytes, bytes};
  const auto one = ParseTfExample(bytes, {&spec, 1});
  const auto both = ParseTfExamples(batch, {&spec, 1});
  SLUICE_CHECK(one.status().code() == both.status().code());
  if (!one.ok()) return;
  const Example examples[] = {*one, *one};
  const Example stacked = Stack(examples).ValueOrThrow();
  SLUICE_CHECK(stacked[spec.name].BitEqual((*both)[spec.name]));
}

// The same bytes are none whether the context or the lists are wanted.
void CheckSequence(std::string_view bytes, const FeatureSpec& spec) {
  const auto context = ParseTfSequenceExample(bytes, {&spec, 1}, {});
  const auto lists = ParseTfSequenceExample(bytes, {}, {&spec, 1});
  SLUICE_CHECK((context.status().code() == Code::kDataLoss) ==
               (lists.status().code() == Code::kDataLoss));
  if (context.ok()) SLUICE_CHECK(ParseTfExample(bytes, {&spec, 1}).ok());
  if (!lists.ok()) return;
  const Tensor& tensor = (*lists)[spec.name];
  if (tensor.elements() > 0) (void)tensor.At(tensor.elements() - 1);
}

void CheckPayload(std::string_view bytes) {
  const FeatureSpec label{"label", DType::kInt64, {kUnknown}, 0};
  CheckBatch(bytes, label);
  CheckSequence(bytes, label);
  const auto example = TfExample::Parse(bytes);
  if (!example.ok()) return;
  CheckTensors(bytes, *example);
  const auto once = EncodeTfExample(FeaturesOf(*example));
  SLUICE_CHECK(once.ok());
  const auto again = TfExample::Parse(*once);
  SLUICE_CHECK(again.ok());
  SLUICE_CHECK(EncodeTfExample(FeaturesOf(*again)).ValueOrThrow() == *once);
}

void CheckFile(std::string_view file) {
  RecordReader reader(file);
  std::string_view payload;
  std::string again;
  for (;;) {
    const auto more = reader.Next(&payload);
    if (!more.ok()) break;
    if (!*more) {
      SLUICE_CHECK(again == file);
      break;
    }
    AppendRecord(payload, &again);
    SLUICE_CHECK(file.starts_with(again));
    CheckPayload(payload);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sluice::CheckFile(bytes);
  sluice::CheckPayload(bytes);
  return 0;
}
