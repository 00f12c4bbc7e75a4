#include "listener.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

namespace netpath {
namespace {

constexpr size_t kMostGuests = 1024;
constexpr std::chrono::seconds kGuestLeavesAfter{5};

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
  const Time since_ = Clock::now();
  wire::Hello hello_{};
  size_t bytes_ = 0;
};

Listener::Listener(Loop& loop, int family, std::shared_ptr<Stats> stats, Admit admit)
    : loop_(loop), stats_(std::move(stats)), admit_(std::move(admit)), fd_(listen_on_any(family, &port_)) {}

Listener::~Listener() = default;

void Listener::start() {
  watch_ = loop_.watch(fd_.get(), EPOLLIN, this);
  ticker_ = loop_.add_ticker([this](Time now) { tick(now); });
}

void Listener::end() {
  loop_.forget(watch_);
  loop_.remove_ticker(ticker_);
  guests_.clear();
  fd_.reset();
}

void Listener::on_ready(uint32_t) {
  for (;;) {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // Without descriptors the kernel would report the same connection for ever: the oldest guest makes room.
      if ((errno == EMFILE || errno == ENFILE) && !guests_.empty()) guests_.pop_front();
      return;
    }
    prepare_stream(fd.get());
    if (guests_.size() >= kMostGuests) {
      stats_->refused();
      guests_.pop_front();
    }
    guests_.push_back(std::make_unique<Guest>(*this, std::move(fd)));
  }
}

void Listener::tick(Time now) {
  guests_.remove_if([&](const std::unique_ptr<Guest>& guest) {
    if (!guest->done() && now - guest->since() > kGuestLeavesAfter) guest->refuse();
    return guest->done();
  });
}

}  // namespace netpath
