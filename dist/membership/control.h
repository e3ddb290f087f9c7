// What members of a job and its coordinator tell each other, on a connection of
// its own that neither waits for.
//
//   kBeat     both ways, several times in a lease: I live; to the coordinator
//             also how many collectives I have begun (run), and where I have
//             been in the last one for long, its name
//   kGoodbye  both ways: I leave, and nobody shall miss me
//   kError    to the coordinator: I give up, and why (count: the code)
//   kSuspect  to the coordinator: I cannot go on because of the rank `run`
//   kVerdict  to the members: the error that all have from now on; its epoch is
//             that of a membership that nobody has yet
#ifndef SLUICE_DIST_MEMBERSHIP_CONTROL_H_
#define SLUICE_DIST_MEMBERSHIP_CONTROL_H_

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dist/net/frame.h"
#include "dist/net/socket.h"
#include "engine/status.h"

namespace sluice::dist {

// How long goodbyes and a last decision may take to be sent.
inline constexpr std::chrono::milliseconds kToTell(200);

struct ControlMessage {
  FrameKind kind = FrameKind::kBeat;
  int rank = 0;  // who says it
  uint32_t epoch = 0;
  int whom = 0;   // of kSuspect
  Status reason;  // of kError, kSuspect and kVerdict; an error
  // Fields of kBeat.
  uint64_t run = 0;
  std::string waits_in;
};

// The bytes of a message; its text is cut at 2 KiB.
std::string Encoded(const ControlMessage& message);

// Bytes as they come, whole messages as they are complete.
class ControlReader {
 public:
  // Ranks are below `size`.
  explicit ControlReader(int size) : size_(size) {}

  // kDataLoss where they are no messages; then all is lost.
  Status Add(std::string_view bytes, std::vector<ControlMessage>* out);

 private:
  Status Read(const Frame& frame, std::string_view text,
              ControlMessage* out) const;

  int size_;
  std::string bytes_;
};

// One end of the connection between a member and the coordinator. One thread.
class ControlChannel {
 public:
  ControlChannel(Socket socket, int size)
      : socket_(std::move(socket)), reader_(size) {}

  bool open() const { return socket_.connected(); }
  // What to poll for.
  pollfd Wanted() const;
  void Say(const ControlMessage& message);
  // Says `beat`, unless earlier words are still on their way, which say as
  // much.
  void Beat(ControlMessage beat);
  // Sends and takes what can be without waiting. An error where the connection
  // has ended or makes no sense, which closes it; `in` has what came before.
  Status Move(std::vector<ControlMessage>* in);
  // Sends what can be sent without waiting, and takes nothing.
  Status Send();
  bool flushed() const { return out_.empty(); }

 private:
  Status Receive(std::vector<ControlMessage>* in);

  Socket socket_;
  ControlReader reader_;
  std::string out_;
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_MEMBERSHIP_CONTROL_H_
