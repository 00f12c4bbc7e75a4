#include "netlink.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>

#include <cerrno>
#include <system_error>

namespace netpath {

LinkWatch::LinkWatch(Loop& loop, std::shared_ptr<const Links> links, std::vector<Nic> nics, std::function<void(const std::string&, bool)> changed)
    : loop_(loop), links_(std::move(links)), nics_(std::move(nics)), up_(nics_.size(), true), changed_(std::move(changed)) {}

void LinkWatch::start() {
  fd_.reset(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (!fd_ || bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::system_error(errno, std::generic_category(), "netlink");
  }
  watch_ = loop_.watch(fd_.get(), EPOLLIN, this);
  query();
}

void LinkWatch::end() {
  loop_.forget(watch_);
  fd_.reset();
}

void LinkWatch::on_ready(uint32_t) {
  char events[8192];
  // Which link an event is about does not matter: all are queried. So a lost event (ENOBUFS) needs no care either.
  while (recv(fd_.get(), events, sizeof events, 0) > 0 || errno == ENOBUFS || errno == EINTR) errno = 0;
  query();
}

void LinkWatch::query() {
  for (size_t i = 0; i < nics_.size(); ++i) {
    const std::optional<bool> up = links_->is_up(nics_[i].name);
    if (!up || *up == up_[i]) continue;
    up_[i] = *up;
    changed_(nics_[i].name, *up);
  }
}

}  // namespace netpath
