#include "loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <system_error>

namespace netpath {
namespace {

constexpr std::chrono::seconds kStopped{1};  // a thread that does not run for longer

}  // namespace

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!epoll_ || !wake_) throw std::system_error(errno, std::generic_category(), "epoll");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) throw std::system_error(errno, std::generic_category(), "epoll");
  // The new thread inherits the mask: signals of the process belong to the threads of the application.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "understudy-net");
}

Loop::~Loop() { stop(); }

void Loop::stop() {
  if (!thread_.joinable()) return;
  post([this] { stopping_ = true; });
  thread_.join();
  tickers_.clear();  // they own communicators that the application has not closed
}

void Loop::post(std::function<void()> task) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) eventfd_write(wake_.get(), 1);
}

void Loop::run(const std::function<void()>& task) {
  struct {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  } state;
  {
    std::unique_lock lock(mutex_);
    if (ended_) {
      lock.unlock();
      task();
      return;
    }
    tasks_.push_back([&] {
      task();
      const std::lock_guard guard(state.mutex);
      state.done = true;
      state.changed.notify_one();
    });
  }
  eventfd_write(wake_.get(), 1);
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.done; });
}

Time Loop::now() {
  const Time now = Clock::now();
  if (now - last_now_ > kStopped) paused_ += now - last_now_;
  last_now_ = now;
  return now - paused_;
}

Loop::Watch Loop::watch(int fd, uint32_t events, Handler* handler) {
  const Watch id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  watched_[id] = {fd, handler};
  return id;
}

void Loop::change(Watch watch, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, watched_.at(watch).fd, &event);
}

void Loop::forget(Watch watch) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watched_.erase(found);
}

uint64_t Loop::add_ticker(Ticker ticker) {
  tickers_[next_id_] = std::move(ticker);
  return next_id_++;
}

void Loop::remove_ticker(uint64_t ticker) { tickers_.erase(ticker); }

void Loop::work() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    // Without communicators only tasks and new connections matter.
    const int wait = tickers_.empty() ? 1000 : static_cast<int>(kTick.count());
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), wait);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        run_tasks();
      } else if (const auto found = watched_.find(events[i].data.u64); found != watched_.end()) {  // not forgotten in this round
        found->second.handler->on_ready(events[i].events);
      }
    }
    tick(now());
  }
  for (bool ended = false; !ended;) {  // a thread may wait for a task that came late
    run_tasks();
    const std::lock_guard lock(mutex_);
    ended = ended_ = tasks_.empty();
  }
}

void Loop::run_tasks() {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void Loop::tick(Time now) {
  if (now - last_tick_ < kTick) return;
  last_tick_ = now;
  std::vector<uint64_t> ids;  // a ticker may remove itself or others
  for (const auto& [id, ticker] : tickers_) ids.push_back(id);
  for (const uint64_t id : ids) {
    if (const auto found = tickers_.find(id); found != tickers_.end()) {
      const Ticker ticker = found->second;
      ticker(now);
    }
  }
}

}  // namespace netpath
