// The one port of a process: greets connections, and closes those that do not belong here.
//
// A stranger can cost a descriptor for a few seconds, and no more: the number of connections that have not greeted yet is limited, and
// the oldest one goes first.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "loop.h"
#include "stats.h"
#include "wire.h"

namespace netpath {

class Listener : public Handler {
 public:
  // Takes a connection that has sent a Hello with the right magic. False: it does not belong here.
  using Admit = std::function<bool(Fd fd, const wire::Hello& hello)>;

  // Throws std::system_error.
  Listener(Loop& loop, int family, std::shared_ptr<Stats> stats, Admit admit);

  ~Listener() override;

  uint16_t port() const { return port_; }
  void start();  // on the loop
  void end();    // on the loop
  void on_ready(uint32_t events) override;

 private:
  class Guest;
  void tick(Time now);
  void pause();
  void resume();  // throws std::system_error
  void see_off();

  Loop& loop_;
  const std::shared_ptr<Stats> stats_;
  const Admit admit_;
  uint16_t port_ = 0;
  Fd fd_;
  Loop::Watch watch_ = 0;
  std::optional<Time> paused_at_;
  uint64_t ticker_ = 0;
  std::list<std::unique_ptr<Guest>> guests_;  // the oldest first
};

}  // namespace netpath
