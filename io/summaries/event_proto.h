// Serialised tensorflow.Event messages. Internal to io; the only place that
// knows protobuf. Without it every function returns kUnimplemented.
#ifndef SLUICE_IO_SUMMARIES_EVENT_PROTO_H_
#define SLUICE_IO_SUMMARIES_EVENT_PROTO_H_

#include <string>
#include <string_view>
#include <vector>

#include "io/summaries/event_file.h"

namespace sluice {

// When and at which step; wall_time in seconds since 1970.
struct EventStamp {
  double wall_time;
  int64_t step;
};

// The first event of a file.
Result<std::string> EncodeVersionEvent(EventStamp stamp);
Result<std::string> EncodeScalarEvent(EventStamp stamp, const std::string& tag,
                                      double value);
Result<std::string> EncodeHistogramEvent(EventStamp stamp,
                                         const std::string& tag,
                                         const Tensor& values);
// `png` is the encoded image of shape [height,width,channels].
Result<std::string> EncodeImageEvent(EventStamp stamp, const std::string& tag,
                                     const Shape& shape,
                                     const std::string& png);
Result<std::string> EncodeGraphEvent(EventStamp stamp, const EventGraph& graph);

// Decodes an event: one record for each of its values.
Result<std::vector<EventRecord>> DecodeEvent(std::string_view bytes);

}  // namespace sluice

#endif  // SLUICE_IO_SUMMARIES_EVENT_PROTO_H_
