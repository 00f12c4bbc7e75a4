#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "crc.h"
#include "log.h"
#include "seal.h"
#include "sender.h"

namespace netpath {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLateAfter{100};    // and two round trips
constexpr milliseconds kLateAtMost{2000};
constexpr milliseconds kCloseAfter{1000};  // late for so long: open a new connection
constexpr milliseconds kGreetWithin{2000};
constexpr milliseconds kRetry{250};
constexpr milliseconds kLives{1000};       // a connection that ended earlier is not opened again at once
constexpr milliseconds kProbeEvery{1000};
constexpr uint32_t kProbeBytes = 1 << 16;

const std::array<char, kProbeBytes> kFiller{};  // the payload of probes, and of what is not needed any more

}  // namespace

SenderStream::SenderStream(Sender& comm, Loop& loop, Rail& rail, int number) : comm_(comm), loop_(loop), rail_(rail), number_(number) {}

SenderStream::~SenderStream() { end(); }

void SenderStream::end() {
  if (state_ == State::kOpen) --rail_.stats->open;
  state_ = State::kClosed;
  retry_at_ = Time::max();
  if (!fd_) return;  // so the destructor, which may run on any thread, leaves the loop alone
  loop_.forget(watch_);
  end_connection(fd_);
}

void SenderStream::open(Time now) {
  const RailAddresses& addresses = rail_.addresses;
  // Packets to an own address go over loopback, whatever the interface of the address.
  const bool own = addresses.local.address == addresses.remote;
  fd_ = connect_from(addresses.local.address, own ? "" : addresses.local.name, addresses.remote, comm_.handle().port);
  since_ = now;
  if (!fd_) {
    refused_ = errno == ECONNREFUSED;
    retry_at_ = now + kRetry;
    return;
  }
  try {
    watch_ = loop_.watch(fd_.get(), EPOLLOUT, this);
  } catch (const std::system_error&) {  // the system has no memory or no watches left
    fd_.reset();
    retry_at_ = now + kRetry;
    return;
  }
  state_ = State::kConnecting;
}

void SenderStream::connected() {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  const Time now = loop_.now();
  if (error != 0) refused_ = error == ECONNREFUSED;  // else it is as before until the answer comes
  wire::Hello hello{};
  hello.magic = wire::kMagic;
  hello.rail = static_cast<uint8_t>(rail_.number);
  hello.stream = static_cast<uint8_t>(number_);
  hello.flags = comm_.config().checksum ? wire::kWithChecksum : 0;
  hello.listener = comm_.handle().listener;
  hello.secret = comm_.handle().secret;
  hello.communicator = comm_.id();
  // The buffer of a new socket has room for a greeting.
  if (error != 0 || send(fd_.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello) {
    close(now + kRetry);
    return;
  }
  state_ = State::kGreeting;
  since_ = now;
  loop_.change(watch_, EPOLLIN);
}

void SenderStream::on_ready(uint32_t events) {
  if (state_ == State::kConnecting) {
    connected();
    return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_replies();
  if ((events & EPOLLOUT) != 0 && frame_) write();
  comm_.pump();
}

void SenderStream::read_replies() {
  std::array<wire::Reply, 64> replies;
  while (fd_) {
    // A reply that has come in part stays at the beginning.
    replies[0] = reply_;
    const ssize_t got = recv(fd_.get(), reinterpret_cast<char*>(replies.data()) + reply_bytes_, sizeof replies - reply_bytes_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      if (state_ == State::kGreeting) refused_ = true;
      fail(loop_.now());
      return;
    }
    const size_t bytes = reply_bytes_ + static_cast<size_t>(got);
    for (size_t i = 0; i < bytes / sizeof(wire::Reply); ++i) {
      if (!intact(replies[i], comm_.config().checksum)) {
        ++rail_.stats->corrupt;
        close(loop_.now() + kRetry);
        return;
      }
      if (!handle(replies[i])) {
        if (fd_) warn("a receiver breaks the protocol; the connection is closed");
        close(loop_.now() + kRetry);
        return;
      }
      if (!fd_) return;  // the communicator has failed
    }
    reply_bytes_ = bytes % sizeof(wire::Reply);
    reply_ = replies[(bytes / sizeof(wire::Reply)) % replies.size()];
  }
}

bool SenderStream::handle(const wire::Reply& reply) {
  // A bye can be the answer to a greeting too: the receiver has closed in the meantime.
  if ((state_ == State::kGreeting) != (reply.type == wire::Type::kWelcome) && reply.type != wire::Type::kBye) return false;
  switch (reply.type) {
    case wire::Type::kWelcome: {
      if (reply.first != comm_.handle().answer) return false;
      const Time now = loop_.now();
      round_trip_ = now - since_;
      since_ = last_ack_ = waiting_since_ = welcomed_ = now;
      refused_ = false;
      state_ = State::kOpen;
      ++rail_.stats->open;
      if (std::exchange(opened_before_, true)) {
        ++rail_.stats->reconnects;
        --rail_.stats->open;
        state_ = State::kProving;
        begin(nullptr, kProbeBytes);
      } else {
        comm_.alive(now);  // a stream that is opened again has to prove it
      }
      return true;
    }
    case wire::Type::kAck:
      return acknowledge(reply.first, reply.second);
    case wire::Type::kGrant:
      return comm_.granted(reply.first, reply.second);
    case wire::Type::kBye:
      comm_.peer_closed(reply.first);
      return false;  // the stream has ended
    default:
      return false;
  }
}

bool SenderStream::acknowledge(uint64_t frames, uint64_t bytes) {
  const uint64_t complete = acked_frames_ + in_flight_.size() - (frame_ ? 1 : 0);
  if (frames < acked_frames_ || frames > complete || bytes < acked_bytes_) return false;
  const Time now = loop_.now();
  if (frames > acked_frames_ || bytes > acked_bytes_) progressed(now);
  acked_bytes_ = bytes;
  for (; acked_frames_ < frames; ++acked_frames_) {
    const Frame frame = std::move(in_flight_.front());
    in_flight_.pop_front();
    bytes_in_flight_ -= frame.length;
    rail_.in_flight -= frame.length;
    rail_.delivered += frame.length;
    if (frame.length > 0 && now > frame.sent) {
      rail_.measure(static_cast<double>(rail_.delivered - frame.delivered_before) / Seconds(now - frame.sent).count(), frame.busy);
    }
    if (frame.chunk && !frame.chunk->acknowledged) {
      rail_.stats->bytes += frame.length;
      ++rail_.stats->chunks;
      comm_.acknowledged(*frame.chunk);
    }
  }
  if (state_ == State::kProving && in_flight_.empty()) {
    state_ = State::kOpen;
    ++rail_.stats->open;
  }
  return true;
}

void SenderStream::progressed(Time now) {
  note_stall(now);
  last_ack_ = waiting_since_ = now;
  if (state_ == State::kProving) since_ = now;
  comm_.alive(now);
}

void SenderStream::note_stall(Time now) {
  if (!std::exchange(late_, false)) return;
  const auto silent = static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(now - waiting_since_).count());
  rail_.stats->longest_stall_ms = std::max<uint64_t>(rail_.stats->longest_stall_ms, silent);
}

void SenderStream::start(std::shared_ptr<Chunk> chunk) {
  rail_.last_data = loop_.now();
  const uint32_t length = chunk->length;
  begin(std::move(chunk), length);
}

void SenderStream::probe(uint32_t bytes) { begin(nullptr, bytes); }

void SenderStream::begin(std::shared_ptr<Chunk> chunk, uint32_t length) {
  const Time now = loop_.now();
  header_ = {};
  header_.type = chunk ? wire::Type::kData : wire::Type::kProbe;
  header_.length = length;
  if (chunk) {
    header_.message = chunk->message;
    header_.offset = chunk->offset;
    header_.total = chunk->total;
    header_.unit = chunk->unit;
    if (comm_.config().checksum) header_.checksum = crc32c(0, chunk->data, length);
  }
  seal(&header_, comm_.config().checksum);
  damage(&header_);
  if (in_flight_.empty()) waiting_since_ = now;
  in_flight_.push_back({std::move(chunk), length, now, rail_.delivered, rail_.in_flight > 0});
  rail_.in_flight += length;
  bytes_in_flight_ += length;
  frame_ = true;
  written_ = 0;
  write();
}

void SenderStream::write() {
  while (frame_) {
    const Frame& frame = in_flight_.back();
    std::array<iovec, 2> parts;
    size_t count = 0;
    if (written_ < sizeof header_) parts[count++] = {reinterpret_cast<char*>(&header_) + written_, sizeof header_ - written_};
    const size_t done = written_ > sizeof header_ ? written_ - sizeof header_ : 0;
    size_t rest = frame.length - done;
    const bool needed = frame.chunk && !frame.chunk->acknowledged;
    const char* from = needed ? frame.chunk->data + done : kFiller.data();
    if (!needed) rest = std::min(rest, kFiller.size());
#ifdef UNDERSTUDY_BREAK_WIRE
    // The first byte of every 64th frame arrives changed: it is sent alone, after the header alone.
    static thread_local char changed;
    if (needed && done == 0 && rest > 0 && (acked_frames_ + in_flight_.size()) % 64 == 63) {
      changed = static_cast<char>(*from ^ 1);
      from = &changed;
      rest = count == 0 ? 1 : 0;
    }
#endif
    if (rest > 0) parts[count++] = {const_cast<char*>(from), rest};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      loop_.change(watch_, EPOLLIN | EPOLLOUT);
      return;
    }
    if (sent < 0) {
      fail(loop_.now());
      return;
    }
    written_ += static_cast<size_t>(sent);
    if (written_ == sizeof header_ + frame.length) frame_ = false;
  }
  loop_.change(watch_, EPOLLIN);
}

void SenderStream::queue_again() {
  for (Frame& frame : in_flight_) {
    if (!frame.chunk || frame.chunk->acknowledged || std::exchange(frame.queued_again, true)) continue;
    comm_.again(frame.chunk);
    ++rail_.stats->retransmits;
  }
}

// The connection has ended. It is opened again at once, unless it lived so short that the next one may not live longer.
void SenderStream::fail(Time now) {
  const bool lived = (state_ == State::kOpen || state_ == State::kProving) && now - welcomed_ > kLives;
  close(lived ? now : now + kRetry);
}

void SenderStream::close(Time retry_at) {
  if (state_ == State::kClosed) return;
  if (state_ == State::kOpen && !late_) ++rail_.stats->failovers;
  note_stall(loop_.now());
  // A reset: the kernel need not go on trying to deliver what goes another way now.
  const linger now{1, 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  end();
  retry_at_ = retry_at;
  queue_again();
  rail_.in_flight -= bytes_in_flight_;
  bytes_in_flight_ = 0;
  in_flight_.clear();
  frame_ = false;
  reply_bytes_ = 0;
  acked_frames_ = acked_bytes_ = 0;
}

void SenderStream::link_returned(Time now) {
  if (state_ == State::kClosed) retry_at_ = now;
}

void SenderStream::tick(Time now) {
  switch (state_) {
    case State::kClosed:
      if (rail_.link_up && now >= retry_at_) open(now);
      break;
    case State::kConnecting:
    case State::kGreeting:
    case State::kProving:
      if (now - since_ > kGreetWithin) {
        refused_ = false;
        close(now + kRetry);
      }
      break;
    case State::kOpen:
      if (!in_flight_.empty()) {
        check_progress(now);
      } else if (now - last_ack_ > kProbeEvery && ready()) {
        probe(comm_.busy(now) && now - rail_.last_data > kProbeEvery ? kProbeBytes : 0);
      }
      break;
  }
}

void SenderStream::check_progress(Time now) {
  const Seconds limit = std::min<Seconds>(kLateAfter + 2 * round_trip_, kLateAtMost);
  const Seconds silent = now - waiting_since_;
  if (silent < limit / 2) return;
  if (!late_) comm_.probe_idle(*this);
  const Time half = waiting_since_ + std::chrono::duration_cast<Clock::duration>(limit / 2);
  if (!late_ && silent > limit && comm_.another_acknowledged(*this, half)) {
    late_ = true;
    ++rail_.stats->stalls;
    ++rail_.stats->failovers;
    queue_again();
  } else if (late_ && silent > limit + kCloseAfter && comm_.another_acknowledged(*this, now - kCloseAfter)) {
    close(now);
  }
}

void SenderStream::say_bye() {
  if (!ready()) return;
  wire::FrameHeader bye{};
  bye.type = wire::Type::kBye;
  seal(&bye, comm_.config().checksum);
  send(fd_.get(), &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace netpath
