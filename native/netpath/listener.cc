#include "listener.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace netpath {
namespace {

constexpr size_t kMostGuests = 128;
constexpr int kAcceptsAtOnce = 64;  // then other sockets have their turn
constexpr std::chrono::seconds kGuestLeavesAfter{5};
constexpr std::chrono::milliseconds kPause{100};  // without free descriptors

// Guests may use an eighth of the descriptors that the process may have.
size_t most_guests() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::clamp<size_t>(limit.rlim_cur / 8, 1, kMostGuests);
}

}  // namespace

class Listener::Guest : public Handler {
 public:
  Guest(Listener& listener, Fd fd) : listener_(listener), fd_(std::move(fd)), watch_(listener_.loop_.watch(fd_.get(), EPOLLIN, this)) {}
  ~Guest() override { leave(); }

  bool done() const { return !fd_; }
  Time since() const { return since_; }

  void on_ready(uint32_t) override {
    const ssize_t got = recv(fd_.get(), reinterpret_cast<char*>(&hello_) + bytes_, sizeof hello_ - bytes_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      refuse();
      return;
    }
    bytes_ += static_cast<size_t>(got);
    if (bytes_ >= sizeof hello_.magic && hello_.magic != wire::kMagic) {
      refuse();
    } else if (bytes_ == sizeof hello_) {
      listener_.loop_.forget(watch_);
      if (!listener_.admit_(std::move(fd_), hello_)) listener_.stats_->refused();
    }
  }

  void refuse() {
    listener_.stats_->refused();
    leave();
  }

 private:
  void leave() {
    listener_.loop_.forget(watch_);
    end_connection(fd_);
  }

  Listener& listener_;
  Fd fd_;
  const Loop::Watch watch_;
  const Time since_ = listener_.loop_.now();
  wire::Hello hello_{};
  size_t bytes_ = 0;
};

Listener::Listener(Loop& loop, int family, std::shared_ptr<Stats> stats, Admit admit)
    : loop_(loop), stats_(std::move(stats)), admit_(std::move(admit)), fd_(listen_on_any(family, &port_)) {}

Listener::~Listener() = default;

void Listener::start() {
  resume();
  ticker_ = loop_.add_ticker([this](Time now) { tick(now); });
}

void Listener::resume() {
  watch_ = loop_.watch(fd_.get(), EPOLLIN, this);
  paused_at_.reset();
}

// Without descriptors, the kernel would report the same connection for ever.
void Listener::pause() {
  loop_.forget(watch_);
  paused_at_ = loop_.now();
}

void Listener::end() {
  loop_.forget(watch_);
  loop_.remove_ticker(ticker_);
  guests_.clear();
  fd_.reset();
}

void Listener::on_ready(uint32_t) {
  const size_t most = most_guests();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause();
      return;
    }
    prepare_stream(fd.get());
    std::unique_ptr<Guest> guest;
    try {
      guest = std::make_unique<Guest>(*this, std::move(fd));
    } catch (const std::system_error&) {  // the system has no memory or no watches left
      stats_->refused();
      continue;
    }
    guest->on_ready(EPOLLIN);  // a sender greets at once
    if (guest->done()) continue;
    if (guests_.size() >= most) see_off();
    guests_.push_back(std::move(guest));
  }
}

// Make room: without those that have left already, or else without the oldest one.
void Listener::see_off() {
  if (guests_.remove_if([](const std::unique_ptr<Guest>& guest) { return guest->done(); }) > 0) return;
  guests_.front()->refuse();
  guests_.pop_front();
}

void Listener::tick(Time now) {
  guests_.remove_if([&](const std::unique_ptr<Guest>& guest) {
    if (!guest->done() && now - guest->since() > kGuestLeavesAfter) guest->refuse();
    return guest->done();
  });
  if (!paused_at_ || now - *paused_at_ < kPause) return;
  try {
    resume();
  } catch (const std::system_error&) {
    paused_at_ = now;
  }
}

}  // namespace netpath
