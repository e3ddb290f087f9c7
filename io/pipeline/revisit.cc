#include "io/pipeline/revisit.h"

#include <utility>

namespace sluice {

// Only of the first one the input's mark: it may be long, and from there on
// elements are skipped.
void SavePlaces(std::span<const Place* const> held, int64_t next,
                const std::function<void(Mark*)>& save_input, Mark* mark) {
  const int64_t first = held.empty() ? next : held[0]->number;
  mark->push_back(first);
  mark->push_back(next - first);
  mark->push_back(static_cast<int64_t>(held.size()));
  for (const Place* place : held) mark->push_back(place->number - first);
  if (held.empty()) {
    save_input(mark);
  } else {
    mark->insert(mark->end(), held[0]->before.begin(), held[0]->before.end());
  }
}

Status Revisit(MarkReader* mark, Stream<Example>* input,
               const std::function<Status(Place place, Example example)>& held,
               int64_t* next) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t first, mark->Next());
  SLUICE_ASSIGN_OR_RETURN(const int64_t span, mark->Next());
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, mark->Next(0, span));
  std::vector<int64_t> distances;
  for (int64_t i = 0, least = 0; i < count; ++i, ++least) {
    SLUICE_ASSIGN_OR_RETURN(least, mark->Next(least, span - 1));
    distances.push_back(least);
  }
  SLUICE_RETURN_IF_ERROR(input->Restore(mark));
  int64_t at = 0;
  for (const int64_t distance : distances) {
    SLUICE_RETURN_IF_ERROR(SkipAll(input, distance - at));
    Place place = {.number = first + distance, .before = {}};
    input->Save(&place.before);
    Example example;
    SLUICE_ASSIGN_OR_RETURN(const bool more, input->Next(&example));
    if (!more) return OutOfRange("the position is behind the input's end");
    SLUICE_RETURN_IF_ERROR(held(std::move(place), std::move(example)));
    at = distance + 1;
  }
  *next = first + span;
  return SkipAll(input, span - at);
}

}  // namespace sluice
