#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "crc.h"
#include "log.h"
#include "receiver.h"
#include "seal.h"

namespace netpath {
namespace {

constexpr size_t kMostQueued = size_t{1} << 20;  // a peer that does not read replies loses the stream
constexpr size_t kAckBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kAckEvery{20};
constexpr int kReadsAtOnce = 16;  // then other streams have their turn

// Payload that is dropped lands here. No thread reads it.
char* sink(size_t* size) {
  static thread_local std::array<char, size_t{1} << 16> bytes;
  *size = std::min(*size, bytes.size());
  return bytes.data();
}

}  // namespace

ReceiverStream::ReceiverStream(Receiver& comm, Loop& loop, Fd fd, std::shared_ptr<RailStats> stats, bool checksum)
    : comm_(comm), loop_(loop), fd_(std::move(fd)), stats_(std::move(stats)), checksum_(checksum), watch_(loop_.watch(fd_.get(), EPOLLIN, this)) {
  ++stats_->open;
}

ReceiverStream::~ReceiverStream() { end(); }

void ReceiverStream::end() {
  if (!fd_) return;
  --stats_->open;
  loop_.forget(watch_);
  end_connection(fd_);
}

void ReceiverStream::on_ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  Read result = Read::kMore;
  for (int i = 0; i < kReadsAtOnce && result == Read::kMore; ++i) result = read_some();
  if (result == Read::kClosed) return;
  acknowledge();
  flush();
}

// One system call: the rest of the payload and, if it may fit, the next header.
ReceiverStream::Read ReceiverStream::read_some() {
  std::array<iovec, 2> parts;
  size_t count = 0, payload = 0;
  if (in_payload_) {
    payload = header_.length - payload_bytes_;
    const bool all = target_ != nullptr;
    char* const to = all ? target_ + payload_bytes_ : sink(&payload);
    parts[count++] = {to, payload};
    if (payload_bytes_ + payload == header_.length) parts[count++] = {&header_, 0};
  } else {
    parts[count++] = {reinterpret_cast<char*>(&header_) + header_bytes_, sizeof header_ - header_bytes_};
  }
  // While a payload arrives its header is still needed, so the next one goes to a place of its own.
  wire::FrameHeader next;
  if (count == 2) parts[1] = {&next, sizeof next};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Read::kEmpty;
  if (got <= 0) {
    comm_.drop(this, got == 0 || errno == ECONNRESET);
    return Read::kClosed;
  }
  comm_.heard();
  bytes_ += static_cast<uint64_t>(got);
  bool good = true;
  if (in_payload_) {
    const size_t of_payload = std::min(static_cast<size_t>(got), payload);
    payload_bytes_ += of_payload;
    if (payload_bytes_ == header_.length) {
      good = payload_arrived();
      header_ = next;
      header_bytes_ = static_cast<size_t>(got) - of_payload;
    }
  } else {
    header_bytes_ += static_cast<size_t>(got);
  }
  while (good && !in_payload_ && header_bytes_ == sizeof header_) good = header_arrived();
  if (!good) {
    comm_.drop(this, false);
    return Read::kClosed;
  }
  return Read::kMore;
}

bool ReceiverStream::header_arrived() {
  if (!intact(header_, checksum_)) return corrupt();
  switch (header_.type) {
    case wire::Type::kBye:
      comm_.peer_closed();
      return false;
    case wire::Type::kProbe:
      if (header_.length > wire::kMaxUnit) return false;
      target_ = nullptr;
      break;
    case wire::Type::kData:
      if (!comm_.place(header_, &target_)) {
        warn("a sender breaks the protocol; its connection is closed");
        return false;
      }
      if (target_ == nullptr) ++stats_->duplicates;
      break;
    default:
      warn("a frame of an unknown type; its connection is closed");
      return false;
  }
  in_payload_ = true;
  diverted_ = false;
  payload_bytes_ = 0;
  header_bytes_ = 0;
  return header_.length > 0 || payload_arrived();
}

bool ReceiverStream::payload_arrived() {
  in_payload_ = false;
  ++frames_;
  // A chunk of 0 bytes has a target too: the buffer of its message.
  if (target_ == nullptr) {
    // An acknowledgement says that the chunk is here. If the newer copy is not complete yet, that would be wrong: the sender would take
    // its buffer back, although the newer copy is still read from it.
#ifdef UNDERSTUDY_BREAK_TAKEOVER
    return true;
#endif
    return !diverted_ || comm_.has(header_);
  }
  if (checksum_ && crc32c(0, target_, header_.length) != header_.checksum) return corrupt();
  stats_->bytes += header_.length;
  ++stats_->chunks;
  comm_.chunk_arrived(header_);
  return true;
}

// The connection is closed: the sender opens a new one, and sends again what was not acknowledged.
bool ReceiverStream::corrupt() {
  ++stats_->corrupt;
  comm_.frame_was_corrupt();
  return false;
}

void ReceiverStream::acknowledge() {
  if (frames_ == acked_frames_) {
    const bool enough = bytes_ - acked_bytes_ >= kAckBytes || (bytes_ > acked_bytes_ && loop_.now() - last_ack_ >= kAckEvery);
    if (!enough) return;
  }
  acked_frames_ = frames_;
  acked_bytes_ = bytes_;
  last_ack_ = loop_.now();
  reply(wire::Type::kAck, frames_, bytes_);
}

void ReceiverStream::reply(wire::Type type, uint64_t first, uint64_t second) {
  wire::Reply frame = reply_of(type, first, second, checksum_);
  damage(&frame);
  out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
}

void ReceiverStream::flush() {
  while (fd_ && !out_.empty()) {
    const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) break;  // an error shows when reading
    out_.erase(0, static_cast<size_t>(sent));
  }
  if (fd_ && out_.size() > kMostQueued) {
    comm_.drop(this, false);
    return;
  }
  arm();
}

void ReceiverStream::arm() {
  if (!fd_ || wants_to_write_ == !out_.empty()) return;
  wants_to_write_ = !out_.empty();
  loop_.change(watch_, EPOLLIN | (wants_to_write_ ? EPOLLOUT : 0u));
}

void ReceiverStream::say_bye(uint64_t received) {
  reply(wire::Type::kBye, received, 0);
  send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace netpath
