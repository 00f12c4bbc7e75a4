#include "receiver.h"

#include <algorithm>
#include <system_error>

#include "log.h"
#include "seal.h"

namespace netpath {
namespace {

constexpr int kMostCorrupt = 64;             // wrong checksums in a row: not noise, but a defect
constexpr std::chrono::seconds kSenderGoneAfter{5};  // a live sender would have come back

size_t chunks_of(size_t total, uint32_t unit) { return total == 0 ? 1 : (total + unit - 1) / unit; }

}  // namespace

Receiver::Receiver(std::shared_ptr<Loop> loop, std::shared_ptr<Stats> stats, const Config& config)
    : Comm(std::move(loop)), all_stats_(std::move(stats)), config_(config) {}

void Receiver::adopt(Fd fd, const wire::Hello& hello, uint64_t answer, const std::string& interface, const Address& local, const Address& remote) {
  if (stopped_) return;
  if (failed()) {
    const wire::Reply bye = reply_of(wire::Type::kBye, first_, 0, wants_checksums(hello));
    send(fd.get(), &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  if (ticker_ == 0) ticker_ = loop_->add_ticker([self = shared_from_this(), this](Time now) { tick(now); });
  heard();
  auto stats = all_stats_->rail(interface, local.text(), remote.text(), "receive");
  std::unique_ptr<ReceiverStream> stream;
  try {
    stream = std::make_unique<ReceiverStream>(*this, *loop_, std::move(fd), std::move(stats), wants_checksums(hello));
  } catch (const std::system_error& error) {  // the system has no memory or no watches left
    warn("a connection is closed: %s", error.what());
    return;  // the sender opens another one
  }
  stream->reply(wire::Type::kWelcome, answer, 0);
  for (uint64_t message = first_; message < granted_; ++message) {
    if (is_open(message)) stream->reply(wire::Type::kGrant, message, messages_[message - first_].request->size);
  }
  ReceiverStream* const opened = stream.get();
  std::unique_ptr<ReceiverStream> old = std::exchange(streams_[{hello.rail, hello.stream}], std::move(stream));
  if (old) retire(std::move(old));  // the sender has given it up
  opened->flush();
}

void Receiver::retire(std::unique_ptr<ReceiverStream> stream) {
  stream->end();
  dropped_.push_back(std::move(stream));
}

void Receiver::start_request(Request* request) {
  if (messages_.empty()) waiting_since_ = loop_->now();
  Message message;
  message.request = request;
  messages_.push_back(std::move(message));
}

void Receiver::flush_requests() {
  if (stopped_) return;
  for (; granted_ < first_ + messages_.size(); ++granted_) {
    for (const auto& [key, stream] : streams_) stream->reply(wire::Type::kGrant, granted_, messages_[granted_ - first_].request->size);
  }
  std::vector<ReceiverStream*> all;  // a stream can drop itself
  for (const auto& [key, stream] : streams_) all.push_back(stream.get());
  for (ReceiverStream* stream : all) stream->flush();
}

bool Receiver::place(const wire::FrameHeader& header, char** target) {
  *target = nullptr;
  if (header.unit < wire::kMinUnit || header.unit > wire::kMaxUnit || header.total > wire::kMaxMessage || header.offset % header.unit != 0) return false;
  if (header.offset > header.total || header.length != std::min<uint64_t>(header.unit, header.total - header.offset)) return false;
  if (header.length == 0 && header.total != 0) return false;
  if (header.message >= granted_) return false;
  if (!is_open(header.message)) {
#ifdef UNDERSTUDY_BREAK_DEDUPE
    *target = finished_[header.message] + header.offset;
#endif
    return true;
  }
  Message& message = messages_[header.message - first_];
  if (message.unit == 0) {
    if (header.total > message.request->size) return false;
    message.total = header.total;
    message.unit = header.unit;
    message.missing = chunks_of(header.total, header.unit);
    message.arrived.assign(message.missing, false);
  }
  if (message.total != header.total || message.unit != header.unit) return false;
  if (message.arrived[header.offset / header.unit]) return true;
  for (const auto& [key, stream] : streams_) {
    if (stream->receives(header.message, header.offset)) stream->divert();
  }
  *target = message.request->data + header.offset;
  // A chunk without bytes may have no buffer.
  static char nowhere;
  if (*target == nullptr) *target = &nowhere;
  return true;
}

void Receiver::chunk_arrived(const wire::FrameHeader& header) {
  corrupt_in_a_row_ = 0;
  if (!is_open(header.message)) return;
  Message& message = messages_[header.message - first_];
  if (message.arrived[header.offset / header.unit]) return;
  message.arrived[header.offset / header.unit] = true;
  if (--message.missing > 0) return;
#ifdef UNDERSTUDY_BREAK_DEDUPE
  finished_[header.message] = message.request->data;
#endif
  finish(std::exchange(message.request, nullptr), message.total);
  while (!messages_.empty() && messages_.front().request == nullptr) {
    messages_.pop_front();
    ++first_;
  }
  received_ = first_;
}

bool Receiver::has(const wire::FrameHeader& header) const {
  return !is_open(header.message) || messages_[header.message - first_].arrived[header.offset / header.unit];
}

void Receiver::frame_was_corrupt() {
  if (++corrupt_in_a_row_ >= kMostCorrupt) {
    give_up(abi::kSystemError, "64 frames in a row had a wrong checksum: check the memory and the network of both hosts");
  }
}

void Receiver::peer_closed() {
  give_up(abi::kRemoteError, "the sender has closed the communicator");
}

void Receiver::drop(ReceiverStream* stream, bool by_peer) {
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    if (it->second.get() != stream) continue;
    retire(std::move(it->second));
    streams_.erase(it);
    break;
  }
  if (streams_.empty()) {
    no_stream_since_ = loop_->now();
    ended_by_peer_ = by_peer;
  }
}

void Receiver::tick(Time now) {
  dropped_.clear();
  if (messages_.empty() || failed()) return;
  const Seconds gone = std::min<Seconds>(kSenderGoneAfter, config_.give_up);
  if (streams_.empty() && ended_by_peer_ && now - no_stream_since_ > gone) {
    give_up(abi::kRemoteError, "the sender has closed all connections and does not come back: its process has ended");
  } else if (now - std::max(last_heard_, waiting_since_) > config_.give_up) {
    give_up(abi::kSystemError, "nothing was received from the sender on any rail for UNDERSTUDY_NET_GIVE_UP_S");
  }
}

void Receiver::give_up(abi::Result result, const std::string& reason) {
  // The buffers belong to the application again: nothing may write to them from here on.
  for (auto& [key, stream] : streams_) {
    stream->say_bye(first_);
    retire(std::move(stream));
  }
  streams_.clear();
  fail(result, reason);
}

void Receiver::stop() {
  stopped_ = true;
  for (const auto& [key, stream] : streams_) stream->say_bye(first_);
  streams_.clear();
  dropped_.clear();
  if (ticker_ != 0) loop_->remove_ticker(ticker_);
}

}  // namespace netpath
