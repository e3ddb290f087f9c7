#include "apps/sluicerun/output.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "apps/say_line.h"

namespace sluice::launcher {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kQueueBytes = size_t{256} << 10;

bool Writable(int descriptor) {
  pollfd state = {descriptor, POLLOUT, 0};
  return poll(&state, 1, 0) == 1;
}

}  // namespace

void Say(const std::string& line) {
  SayLine("sluicerun: " + line);
}

Sink::Sink(int descriptor, std::string name)
    : descriptor_(descriptor), name_(std::move(name)) {
  struct stat file = {};
  regular_ = fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode);
}

void Sink::Append(std::string_view text) {
  if (error_ == 0) queue_.append(text);
}

void Sink::Flush() {
  while (error_ == 0 && pending()) {
    size_t bytes = queue_.size() - written_;
    if (!regular_) {
      // A pipe that is writable takes this much without waiting.
      bytes = std::min<size_t>(bytes, PIPE_BUF);
      if (!Writable(descriptor_)) break;
    }
    const ssize_t done = write(descriptor_, queue_.data() + written_, bytes);
    if (done >= 0) {
      written_ += static_cast<size_t>(done);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  if (error_ != 0 || !pending()) {
    queue_.clear();
    written_ = 0;
  } else if (written_ >= kQueueBytes) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

bool Sink::full() const {
  return queue_.size() - written_ >= kQueueBytes;
}

void Tail::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    unfinished_.append(piece.substr(0, kLineBytes - unfinished_.size()));
    begun_ = end == std::string_view::npos;
    if (begun_) return;
    lines_.push_back(std::exchange(unfinished_, {}));
    if (lines_.size() > kLines) lines_.pop_front();
    bytes.remove_prefix(end + 1);
  }
}

std::deque<std::string> Tail::Lines() const {
  std::deque<std::string> lines = lines_;
  if (begun_) lines.push_back(unfinished_);
  if (lines.size() > kLines) lines.pop_front();
  return lines;
}

std::deque<std::string> Tails::Lines() const {
  std::deque<std::string> lines = err.Lines();
  return lines.empty() ? out.Lines() : lines;
}

Stream::Stream(dist::Descriptor pipe, Form form, std::string prefix, Sink* sink,
               Tail* tail)
    : pipe_(std::move(pipe)),
      form_(form),
      prefix_(std::move(prefix)),
      sink_(sink),
      tail_(tail) {}

bool Stream::Read() {
  static std::vector<char> buffer(kReadBytes);
  ssize_t bytes = 0;
  do {
    bytes = read(pipe_.get(), buffer.data(), buffer.size());
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && errno == EAGAIN) return false;
  if (bytes <= 0) {
    Close();
    return false;
  }
  PassOn({buffer.data(), static_cast<size_t>(bytes)});
  return true;
}

void Stream::CloseIfUnheard() {
  if (sink_->error() != 0) Close();
}

void Stream::Close() {
  if (!line_.empty()) EmitLine();
  pipe_ = {};
}

void Stream::PassOn(std::string_view bytes) {
  tail_->Add(bytes);
  if (form_ == Form::kBytes) {
    sink_->Append(bytes);
    return;
  }
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece =
        bytes.substr(0, std::min(end, kLongestLine - line_.size()));
    line_.append(piece);
    bytes.remove_prefix(piece.size());
    if (bytes.empty()) return;
    if (bytes.front() == '\n') bytes.remove_prefix(1);
    EmitLine();
  }
}

void Stream::EmitLine() {
  sink_->Append(prefix_);
  sink_->Append(line_);
  sink_->Append("\n");
  line_.clear();
}

}  // namespace sluice::launcher
