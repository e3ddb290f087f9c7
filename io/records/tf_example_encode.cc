// tf.Example and tf.SequenceExample, written.
#include <fmt/format.h>

#include <climits>

#include "io/records/tf_example.h"
#include "io/records/tf_example_wire.h"
#include "io/records/tf_sequence_example.h"

#if SLUICE_HAVE_PROTOBUF
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "io/proto/example.pb.h"
#endif

namespace sluice {

#if SLUICE_HAVE_PROTOBUF

namespace {

void ToProto(const std::vector<std::string>& values, proto::Feature* out) {
  auto* list = out->mutable_bytes_list();
  for (const std::string& value : values) list->add_value(value);
}
void ToProto(const std::vector<float>& values, proto::Feature* out) {
  out->mutable_float_list()->mutable_value()->Add(values.begin(), values.end());
}
void ToProto(const std::vector<int64_t>& values, proto::Feature* out) {
  out->mutable_int64_list()->mutable_value()->Add(values.begin(), values.end());
}
void ToProto(const TfFeature& feature, proto::Feature* out) {
  std::visit([out](const auto& values) { ToProto(values, out); }, feature);
}
void ToProto(const TfFeatureList& steps, proto::FeatureList* out) {
  for (const TfFeature& step : steps) ToProto(step, out->add_feature());
}

// To a map's entries; `what` they are, for errors.
template <typename T, typename Map>
Status ToProto(std::string_view what,
               std::span<const std::pair<std::string, T>> entries, Map* out) {
  for (const auto& [name, value] : entries) {
    if (!tf_wire::IsUtf8(name)) {
      return InvalidArgument(
          fmt::format("the name of {} '{}' is no UTF-8", what, name));
    }
    if (out->contains(name)) {
      return InvalidArgument(fmt::format("{} '{}' comes twice", what, name));
    }
    ToProto(value, &(*out)[name]);
  }
  return {};
}

// The entries of maps in the order of their names.
template <typename Message>
Result<std::string> Serialise(std::string_view what, const Message& message) {
  const size_t size = message.ByteSizeLong();
  if (size > INT_MAX) {
    return InvalidArgument(fmt::format("a {} of {} bytes; at most {} can be",
                                       what, size, INT_MAX));
  }
  std::string bytes;
  bytes.reserve(size);
  {
    google::protobuf::io::StringOutputStream to(&bytes);
    google::protobuf::io::CodedOutputStream out(&to);
    out.SetSerializationDeterministic(true);
    message.SerializeWithCachedSizes(&out);
  }
  return bytes;
}

}  // namespace

Result<std::string> EncodeTfExample(
    std::span<const std::pair<std::string, TfFeature>> features) {
  proto::Example example;
  SLUICE_RETURN_IF_ERROR(ToProto(
      "feature", features, example.mutable_features()->mutable_feature()));
  return Serialise("tf.Example", example);
}

Result<std::string> EncodeTfSequenceExample(
    std::span<const std::pair<std::string, TfFeature>> context,
    std::span<const std::pair<std::string, TfFeatureList>> lists) {
  proto::SequenceExample example;
  SLUICE_RETURN_IF_ERROR(ToProto("feature", context,
                                 example.mutable_context()->mutable_feature()));
  SLUICE_RETURN_IF_ERROR(
      ToProto("feature list", lists,
              example.mutable_feature_lists()->mutable_feature_list()));
  return Serialise("tf.SequenceExample", example);
}

#else  // !SLUICE_HAVE_PROTOBUF

namespace {

Status NoProtobuf() {
  return Unimplemented(
      "this build has no protobuf, so it writes no tf.Example; install "
      "libprotobuf-dev and protobuf-compiler and build again");
}

}  // namespace

Result<std::string> EncodeTfExample(
    std::span<const std::pair<std::string, TfFeature>>) {
  return NoProtobuf();
}
Result<std::string> EncodeTfSequenceExample(
    std::span<const std::pair<std::string, TfFeature>>,
    std::span<const std::pair<std::string, TfFeatureList>>) {
  return NoProtobuf();
}

#endif

}  // namespace sluice
