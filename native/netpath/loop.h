// A thread that waits for sockets and runs short tasks. All state of a communicator belongs to one loop, so it needs no locks.
//
// Rules: a handler must not block. A handler may forget any descriptor, its own included, while it runs. Tasks run in the order in
// which they were posted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "config.h"
#include "socket.h"

namespace netpath {

class Handler {
 public:
  virtual ~Handler() = default;
  virtual void on_ready(uint32_t events) = 0;
};

class Loop {
 public:
  Loop();
  ~Loop();  // stops the thread
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // From any thread. Tasks that are posted after the end of the thread do not run.
  void post(std::function<void()> task);
  // From any other thread: run `task` on the loop and wait for it; after the end of the thread, run it here.
  void run(const std::function<void()>& task);
  void stop();

  // From the loop's thread only.
  //
  // A clock that stands still while the thread does not run for more than a second, for example because the process is stopped: what
  // others did in the meantime has not been seen, so it is no silence. It also stands still while there are no tickers.
  Time now();
  using Watch = uint64_t;
  Watch watch(int fd, uint32_t events, Handler* handler);
  void change(Watch watch, uint32_t events);
  void forget(Watch watch);
  using Ticker = std::function<void(Time)>;
  uint64_t add_ticker(Ticker ticker);  // called about every kTick, with now()
  void remove_ticker(uint64_t ticker);

  static constexpr std::chrono::milliseconds kTick{10};

 private:
  struct Watched {
    int fd;
    Handler* handler;
  };
  void work();
  void run_tasks();
  void tick(Time now);

  Fd epoll_, wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;  // guarded by mutex_
  bool ended_ = false;                        // guarded by mutex_
  std::atomic<bool> stopping_{false};
  uint64_t next_id_ = 1;
  std::unordered_map<Watch, Watched> watched_;
  std::unordered_map<uint64_t, Ticker> tickers_;
  Time last_tick_{}, last_now_ = Clock::now();
  Clock::duration paused_{0};
  std::thread thread_;
};

}  // namespace netpath
