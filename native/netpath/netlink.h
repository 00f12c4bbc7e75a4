// Events of links, from the kernel. They are hints to query the links: an event can be late, or get lost.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "loop.h"
#include "nic.h"

namespace netpath {

class LinkWatch : public Handler {
 public:
  // `changed` is called on `loop` with the interface and its state now, when that differs from before.
  LinkWatch(Loop& loop, std::shared_ptr<const Links> links, std::vector<Nic> nics, std::function<void(const std::string& interface, bool up)> changed);

  void on_ready(uint32_t events) override;
  void start();  // on the loop; throws std::system_error
  void end();    // on the loop

 private:
  void query();

  Loop& loop_;
  const std::shared_ptr<const Links> links_;
  std::vector<Nic> nics_;
  std::vector<bool> up_;
  std::function<void(const std::string&, bool)> changed_;
  Fd fd_;
  Loop::Watch watch_ = 0;
};

}  // namespace netpath
