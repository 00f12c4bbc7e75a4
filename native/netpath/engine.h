// All that a process has once: interfaces, loops, the port, counters; and who belongs to which communicator.
//
// There is at most one engine. It begins with the first `init`, and ends with the last `finalize`, if the version of the table has one.
// A forked process has none: it begins with its own `init`. Locks: `mutex_` guards the registries, and is never held while a loop is
// waited for.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "config.h"
#include "listener.h"
#include "netlink.h"
#include "nic.h"
#include "receiver.h"
#include "sender.h"
#include "stats.h"

namespace netpath {

class Engine {
 public:
  // Throws std::invalid_argument and std::system_error.
  explicit Engine(const Config& config);
  ~Engine();

  const std::vector<Nic>& nics() const { return nics_; }

  struct Listening {
    uint64_t id;
    pid_t process;
  };
  Listening* listen(wire::Handle* handle);
  void close_listen(Listening* listening);
  std::shared_ptr<Receiver> accept(const Listening* listening);  // null: no sender has connected yet
  void closed(const Receiver& receiver);

  // Called again with the same handle until it returns a communicator. Throws std::runtime_error if there is no way.
  std::shared_ptr<Sender> connect(const wire::Handle& handle);

  void write_stats() { stats_->write(); }

 private:
  struct Waiting {
    wire::Secret secret;
    uint64_t answer;
    std::deque<std::shared_ptr<Receiver>> arrived;
  };
  struct Accepted {
    std::weak_ptr<Receiver> receiver;
    std::shared_ptr<Loop> loop;
    wire::Secret secret;
    uint64_t answer;
    uint64_t received = 0;  // when it was closed
    Time closed_at{};
  };
  bool admit(Fd fd, const wire::Hello& hello);
  std::shared_ptr<Loop> next_loop() { return loops_[next_loop_++ % loops_.size()]; }
  void link_changed(const std::string& interface, bool up);
  void tick();

  const Config config_;
  const std::vector<Nic> nics_;
  const std::shared_ptr<Stats> stats_;
  const std::shared_ptr<const Links> links_;
  std::vector<std::shared_ptr<Loop>> loops_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<LinkWatch> link_watch_;
  Time stats_written_{};
  std::mutex mutex_;
  size_t next_loop_ = 0;                                       // all from here on guarded by mutex_
  std::map<uint64_t, Waiting> listeners_;
  std::map<wire::Secret, Accepted> accepted_;                  // by id of the communicator
  std::map<wire::Secret, std::shared_ptr<Sender>> connecting_;  // by secret
  std::vector<std::weak_ptr<Sender>> senders_;
};

// The engine of this process; null before `acquire_engine` and in a forked process.
std::shared_ptr<Engine> engine();
void acquire_engine();  // throws as Engine
void release_engine();

}  // namespace netpath
