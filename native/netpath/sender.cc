#include "sender.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "log.h"

namespace netpath {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kLeastUnit = 1 << 16, kMostUnit = 1 << 19, kUnitStep = 1 << 12;
constexpr uint64_t kLeastWindow = 2 << 20, kMostWindow = 32 << 20;
constexpr double kWindowSeconds = 0.05;
constexpr milliseconds kWaitForRails{200};     // after the first one
constexpr std::chrono::seconds kReceiverGoneAfter{5};  // of refused connections
constexpr uint64_t kMostGrants = 1024;  // beyond the first message under way; each side has at most 64 requests
constexpr std::chrono::seconds kBusyFor{1}, kLinksEvery{1};

}  // namespace

uint64_t Rail::window() const { return std::clamp(static_cast<uint64_t>(rate * kWindowSeconds), kLeastWindow, kMostWindow); }

// A frame that was sent alone measures the delay rather than the rate, so it can only show that the rail is faster than thought.
void Rail::measure(double sample, bool was_busy) {
  if (sample > rate || was_busy) rate += (sample - rate) / (sample > rate ? 4 : 8);
  stats->rate_mb_s = static_cast<uint64_t>(rate / 1e6);
}

Sender::Sender(std::shared_ptr<Loop> loop, std::shared_ptr<Stats> stats, std::shared_ptr<const Links> links, const std::vector<Nic>& nics,
               const wire::Handle& handle, const Config& config)
    : Comm(std::move(loop)), all_stats_(std::move(stats)), links_(std::move(links)), handle_(handle), config_(config) {
  if (getrandom(id_.data(), id_.size(), 0) != static_cast<ssize_t>(id_.size())) throw std::system_error(errno, std::generic_category(), "getrandom");
  std::vector<Address> remote;
  const int family = handle.family == 4 ? AF_INET : AF_INET6;
  for (size_t i = 0; i < handle.rails; ++i) remote.push_back(Address::from_bytes(family, handle.addresses + i * Address::size(family)));
  for (const RailAddresses& pair : pair_rails(nics, remote)) {
    auto rail = std::make_unique<Rail>();
    rail->number = static_cast<int>(rails_.size());
    rail->addresses = pair;
    rail->stats = all_stats_->rail(pair.local.name, pair.local.address.text(), pair.remote.text(), "send");
    rail->rate = pair.local.speed * 1e6 / 8;
    rails_.push_back(std::move(rail));
  }
}

void Sender::post_begin() {
  loop_->post([self = shared_from_this(), this] { begin(); });
}

void Sender::post_link(const std::string& interface, bool up) {
  loop_->post([self = shared_from_this(), this, interface, up] { link_changed(interface, up); });
}

void Sender::begin() {
  last_alive_ = waiting_since_ = refused_since_ = links_checked_ = loop_->now();
  for (const auto& rail : rails_) {
    rail->link_up = links_->is_up(rail->addresses.local.name).value_or(true);
    for (int i = 0; i < config_.streams; ++i) streams_.push_back(std::make_unique<SenderStream>(*this, *loop_, *rail, i));
  }
  ticker_ = loop_->add_ticker([self = shared_from_this(), this](Time now) { tick(now); });
  for (const auto& stream : streams_) stream->tick(last_alive_);
}

void Sender::link_changed(const std::string& interface, bool up) {
  if (stopped_) return;
  const Time now = loop_->now();
  for (const auto& rail : rails_) {
    if (rail->addresses.local.name == interface) rail->link_up = up;
  }
  for (const auto& stream : streams_) {
    if (stream->rail().addresses.local.name != interface) continue;
    if (up) {
      stream->link_returned(now);
    } else {
      stream->close(now);
    }
    stream->tick(now);
  }
  pump();
}

void Sender::start_request(Request* request) {
  if (messages_.empty()) waiting_since_ = loop_->now();
  Message message;
  message.request = request;
  const uint64_t number = first_ + messages_.size();
  messages_.push_back(message);
  if (const auto found = grants_.find(number); found != grants_.end()) {
    const uint64_t size = found->second;
    grants_.erase(found);
    granted(number, size);
  }
}

bool Sender::granted(uint64_t number, uint64_t size) {
  if (number < first_ || stopped_) return true;  // repeated on another stream
  if (number - first_ > kMostGrants) return false;
  if (number - first_ >= messages_.size()) {
    grants_[number] = size;
    return true;
  }
  Message& message = messages_[number - first_];
  if (message.grant || message.request == nullptr) return true;
  if (message.request->size > size) {
    give_up(abi::kInvalidUsage, "a send of " + std::to_string(message.request->size) + " bytes meets a receive of " + std::to_string(size));
    return true;
  }
  message.grant = size;
  message.unit = unit_for(message.request->size);
  message.missing = message.request->size == 0 ? 1 : (message.request->size + message.unit - 1) / message.unit;
  queued_ += message.request->size;
  return true;
}

uint32_t Sender::unit_for(uint64_t size) const {
  const uint64_t share = (size / std::max<size_t>(rails_.size(), 1) + kUnitStep) / kUnitStep * kUnitStep;
  return static_cast<uint32_t>(std::clamp<uint64_t>(share, kLeastUnit, kMostUnit));
}

// Make `next_` the chunk to send next, if there is one.
void Sender::take_next() {
  if (next_ && next_->acknowledged) next_.reset();
  while (!next_ && !again_.empty()) {
    next_ = std::move(again_.front());
    again_.pop_front();
    queued_ -= next_->length;
    if (next_->acknowledged) next_.reset();
  }
  if (next_) return;
  uncut_ = std::max(uncut_, first_);
  if (uncut_ - first_ >= messages_.size()) return;
  Message& message = messages_[uncut_ - first_];
  if (!message.grant) return;
  const uint64_t size = message.request->size;
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(message.unit, size - message.cut));
  next_ = std::make_shared<Chunk>(Chunk{uncut_, message.cut, static_cast<uint32_t>(size), length, message.unit, message.request->data + message.cut});
  message.cut += length;
  queued_ -= length;
  if (message.cut == size) ++uncut_;
}

bool Sender::usable(const SenderStream& stream) const {
  return stream.is_open() && !stream.late();
}

// The stream that is expected to deliver a chunk first, unless it is better to wait for a faster one.
SenderStream* Sender::choose(uint32_t length) {
  const bool only_late = std::none_of(streams_.begin(), streams_.end(), [&](const auto& one) { return usable(*one); });
  double total_rate = 0, best_of_all = std::numeric_limits<double>::infinity(), best = best_of_all;
  uint64_t backlog = queued_ + length;
  SenderStream* chosen = nullptr;
  const Rail* counted = nullptr;
  for (const auto& stream : streams_) {
    if (!(only_late ? stream->is_open() : usable(*stream))) continue;
    const Rail& rail = stream->rail();
    if (&rail != counted) {  // the streams of a rail are neighbours
      counted = &rail;
      total_rate += rail.rate;
      backlog += rail.in_flight;
    }
    const double expected = static_cast<double>(rail.in_flight + length) / rail.rate;
    best_of_all = std::min(best_of_all, expected);
    if (!stream->ready() || (rail.in_flight > 0 && rail.in_flight + length > rail.window())) continue;
    if (expected < best || (chosen != nullptr && &chosen->rail() == &rail && stream->in_flight() < chosen->in_flight())) {
      best = expected;
      chosen = stream.get();
    }
  }
  // A slow rail may not make the end of a message wait.
  const double all_done = static_cast<double>(backlog) / std::max(total_rate, 1.0);
  return best <= best_of_all || best <= 2 * all_done ? chosen : nullptr;
}

void Sender::pump() {
  if (pumping_ || stopped_) return;
  pumping_ = true;
  for (take_next(); next_; take_next()) {
    SenderStream* const stream = choose(next_->length);
    if (stream == nullptr) break;
    last_data_ = loop_->now();
    stream->start(std::move(next_));
  }
  pumping_ = false;
}

void Sender::acknowledged(Chunk& chunk) {
  chunk.acknowledged = true;
  if (chunk.message < first_) return;
  Message& message = messages_[chunk.message - first_];
  if (message.request != nullptr && --message.missing == 0) finish_message(chunk.message);
}

void Sender::finish_message(uint64_t number) {
  Request* const request = std::exchange(messages_[number - first_].request, nullptr);
  if (request != nullptr) finish(request, request->size);
  while (!messages_.empty() && messages_.front().request == nullptr) {
    messages_.pop_front();
    ++first_;
  }
}

void Sender::again(std::shared_ptr<Chunk> chunk) {
#ifdef UNDERSTUDY_BREAK_RETRANSMIT
  return;
#endif
  queued_ += chunk->length;
  again_.push_back(std::move(chunk));
}

void Sender::alive(Time now) { last_alive_ = now; }

bool Sender::busy(Time now) const { return now - last_data_ < kBusyFor; }

void Sender::peer_closed(uint64_t received) {
  for (uint64_t number = first_; number < received && number - first_ < messages_.size(); number = std::max(number + 1, first_)) finish_message(number);
  give_up(abi::kRemoteError, "the receiver has closed the communicator");
}

bool Sender::another_acknowledged(const SenderStream& late, Time since) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& one) { return one.get() != &late && one->is_open() && one->last_ack() > since; });
}

void Sender::probe_idle(const SenderStream& late) {
  for (const auto& stream : streams_) {
    if (stream.get() != &late && stream->idle() && stream->ready()) stream->probe(0);
  }
}

void Sender::tick(Time now) {
  if (stopped_) return;
  for (const auto& stream : streams_) stream->tick(now);
  check_links(now);
  pump();
  check_connected(now);
  check_peer(now);
}

// An event of a link can be missed, for example if it fails and returns between two queries.
void Sender::check_links(Time now) {
  if (now - links_checked_ < kLinksEvery) return;
  links_checked_ = now;
  for (const auto& rail : rails_) {
    if (!rail->link_up && links_->is_up(rail->addresses.local.name) == true) link_changed(rail->addresses.local.name, true);
  }
}

void Sender::check_connected(Time now) {
  if (connected_) return;
  size_t open = 0, missing = 0;
  for (const auto& stream : streams_) {
    if (stream->is_open()) {
      ++open;
    } else {
      ++missing;
    }
  }
  if (open == 0) return;
  if (first_open_ == Time{}) first_open_ = now;
  if (missing == 0 || now - first_open_ > kWaitForRails) connected_ = true;
}

void Sender::check_peer(Time now) {
  // Where the receiver was before, one refusal is enough: other rails may just be silent. Elsewhere another host may have the address.
  bool refused = false, known = false, possible = false;
  for (const auto& stream : streams_) {
    if (!stream->rail().link_up) continue;
    (stream->refused() ? refused : possible) = true;
    known = known || (stream->refused() && stream->opened_before());
  }
  if (!refused || (possible && !known)) refused_since_ = now;
  if (messages_.empty() && connected_) return;
  if (now - std::max(refused_since_, last_alive_) > std::min<Seconds>(kReceiverGoneAfter, config_.give_up)) {
    give_up(abi::kRemoteError, "the receiver refuses all connections: its process has ended");
  } else if (now - std::max(last_alive_, waiting_since_) > config_.give_up) {
    give_up(abi::kSystemError, "the receiver answers on no rail for UNDERSTUDY_NET_GIVE_UP_S");
  }
}

void Sender::give_up(abi::Result result, const std::string& reason) {
  // The buffers belong to the application again: nothing may read them from here on.
  stop();
  fail(result, reason);
}

void Sender::stop() {
  if (std::exchange(stopped_, true)) return;
  for (const auto& stream : streams_) stream->say_bye();
  for (const auto& stream : streams_) stream->end();
  again_.clear();
  next_.reset();
  if (ticker_ != 0) loop_->remove_ticker(ticker_);
}

}  // namespace netpath
