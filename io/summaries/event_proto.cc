#include "io/summaries/event_proto.h"

#if SLUICE_HAVE_PROTOBUF

#include <fmt/format.h>

#include <climits>

#include "io/proto/event.pb.h"
#include "io/summaries/histogram.h"

namespace sluice {
namespace {

proto::Event Stamped(EventStamp stamp) {
  proto::Event event;
  event.set_wall_time(stamp.wall_time);
  event.set_step(stamp.step);
  return event;
}

proto::Summary::Value* AddValue(proto::Event& event, const std::string& tag) {
  proto::Summary::Value* value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  return value;
}

void ToProto(const EventGraph::Node& node, proto::NodeDef* out) {
  out->set_name(node.name);
  out->set_op(node.op);
  for (const std::string& input : node.inputs) out->add_input(input);
  out->set_device(node.device);
  for (const auto& [key, value] : node.attributes) {
    (*out->mutable_attr())[key].set_s(value);
  }
  auto* shapes = (*out->mutable_attr())["_output_shapes"].mutable_list();
  for (const Shape& shape : node.output_shapes) {
    auto* dims = shapes->add_shape();
    for (int64_t d : shape) dims->add_dim()->set_size(d);
  }
}

EventRecord Describe(const proto::Summary::Value& value) {
  EventRecord record;
  record.tag = value.tag();
  if (value.has_histo()) {
    const proto::HistogramProto& h = value.histo();
    record.kind = "histogram";
    record.summary =
        fmt::format("{} values in [{:g}, {:g}], mean {:g}", h.num(), h.min(),
                    h.max(), h.num() > 0 ? h.sum() / h.num() : 0.0);
  } else if (value.has_image()) {
    record.kind = "image";
    record.summary = fmt::format("{}x{}, {} bytes", value.image().height(),
                                 value.image().width(),
                                 value.image().encoded_image_string().size());
  } else if (value.value_case() == proto::Summary::Value::kSimpleValue) {
    record.kind = "scalar";
    record.value = value.simple_value();
    record.summary = fmt::format("{:g}", record.value);
  } else {
    record.kind = "other";
  }
  return record;
}

EventRecord DescribeGraph(const std::string& bytes) {
  proto::GraphDef graph;
  if (!graph.ParseFromString(bytes)) {
    return {.kind = "graph", .summary = "damaged"};
  }
  return {.kind = "graph",
          .summary = fmt::format("{} nodes", graph.node_size())};
}

}  // namespace

Result<std::string> EncodeVersionEvent(EventStamp stamp) {
  proto::Event event = Stamped(stamp);
  event.set_file_version("brain.Event:2");
  return event.SerializeAsString();
}

Result<std::string> EncodeScalarEvent(EventStamp stamp, const std::string& tag,
                                      double value) {
  proto::Event event = Stamped(stamp);
  AddValue(event, tag)->set_simple_value(static_cast<float>(value));
  return event.SerializeAsString();
}

Result<std::string> EncodeHistogramEvent(EventStamp stamp,
                                         const std::string& tag,
                                         const Tensor& values) {
  const Histogram h = HistogramOf(values);
  proto::Event event = Stamped(stamp);
  proto::HistogramProto* out = AddValue(event, tag)->mutable_histo();
  out->set_min(h.min);
  out->set_max(h.max);
  out->set_num(h.num);
  out->set_sum(h.sum);
  out->set_sum_squares(h.sum_squares);
  for (double limit : h.limits) out->add_bucket_limit(limit);
  for (double count : h.counts) out->add_bucket(count);
  return event.SerializeAsString();
}

Result<std::string> EncodeImageEvent(EventStamp stamp, const std::string& tag,
                                     const Shape& shape,
                                     const std::string& png) {
  proto::Event event = Stamped(stamp);
  proto::Summary::Image* image = AddValue(event, tag)->mutable_image();
  image->set_height(static_cast<int32_t>(shape[0]));
  image->set_width(static_cast<int32_t>(shape[1]));
  image->set_colorspace(static_cast<int32_t>(shape[2]));
  image->set_encoded_image_string(png);
  return event.SerializeAsString();
}

Result<std::string> EncodeGraphEvent(EventStamp stamp,
                                     const EventGraph& graph) {
  // TensorFlow 1.0's graph version: all that readers ask for.
  constexpr int kProducer = 22;
  proto::GraphDef def;
  def.mutable_versions()->set_producer(kProducer);
  for (const EventGraph::Node& node : graph.nodes) {
    ToProto(node, def.add_node());
  }
  proto::Event event = Stamped(stamp);
  event.set_graph_def(def.SerializeAsString());
  return event.SerializeAsString();
}

Result<std::vector<EventRecord>> DecodeEvent(std::string_view bytes) {
  proto::Event event;
  // Protobuf counts in int.
  if (bytes.size() > INT_MAX ||
      !event.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return DataLoss("a record is no TensorBoard event");
  }
  std::vector<EventRecord> records;
  switch (event.what_case()) {
    case proto::Event::kFileVersion:
      records.push_back({.kind = "version", .summary = event.file_version()});
      break;
    case proto::Event::kGraphDef:
      records.push_back(DescribeGraph(event.graph_def()));
      break;
    case proto::Event::kSummary:
      for (const auto& value : event.summary().value()) {
        records.push_back(Describe(value));
      }
      break;
    case proto::Event::WHAT_NOT_SET:
      records.push_back({.kind = "other"});
  }
  for (EventRecord& record : records) {
    record.wall_time = event.wall_time();
    record.step = event.step();
  }
  return records;
}

}  // namespace sluice

#else  // !SLUICE_HAVE_PROTOBUF

namespace sluice {
namespace {

Status NoProtobuf() {
  return Unimplemented(
      "this build has no protobuf, so it has no TensorBoard event files; "
      "install libprotobuf-dev and protobuf-compiler and build again");
}

}  // namespace

Result<std::string> EncodeVersionEvent(EventStamp) {
  return NoProtobuf();
}
Result<std::string> EncodeScalarEvent(EventStamp, const std::string&, double) {
  return NoProtobuf();
}
Result<std::string> EncodeHistogramEvent(EventStamp, const std::string&,
                                         const Tensor&) {
  return NoProtobuf();
}
Result<std::string> EncodeImageEvent(EventStamp, const std::string&,
                                     const Shape&, const std::string&) {
  return NoProtobuf();
}
Result<std::string> EncodeGraphEvent(EventStamp, const EventGraph&) {
  return NoProtobuf();
}
Result<std::vector<EventRecord>> DecodeEvent(std::string_view) {
  return NoProtobuf();
}

}  // namespace sluice

#endif
