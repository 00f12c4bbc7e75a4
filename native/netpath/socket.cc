#include "socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace netpath {

namespace {

constexpr int kRetransmissionAtMost = 44;  // TCP_RTO_MAX_MS, which older headers do not have

// The descriptors of this library. One that is higher stays open in forked processes.
std::array<std::atomic<bool>, 1 << 16> ours;

void mark(int fd, bool is_ours) {
  if (fd >= 0 && static_cast<size_t>(fd) < ours.size()) ours[static_cast<size_t>(fd)] = is_ours;
}

}  // namespace

void Fd::reset(int fd) {
  // The mark is gone before the number can be used again.
  mark(fd_, false);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  mark(fd_, true);
}

void close_all_in_forked_process() {
  for (size_t fd = 0; fd < ours.size(); ++fd) {
    if (ours[fd].exchange(false)) close(static_cast<int>(fd));
  }
}

Address Address::of(const sockaddr* from) {
  Address address;
  if (from->sa_family == AF_INET) {
    return from_bytes(AF_INET, reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(from)->sin_addr));
  }
  if (from->sa_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six)) return from_bytes(AF_INET, six.s6_addr + 12);
    return from_bytes(AF_INET6, six.s6_addr);
  }
  return address;
}

Address Address::from_bytes(int family, const uint8_t* bytes) {
  Address address;
  address.family = family;
  std::memcpy(&address.bytes, bytes, size(family));
  return address;
}

std::pair<sockaddr_storage, socklen_t> Address::with_port(uint16_t port) const {
  std::pair<sockaddr_storage, socklen_t> result{};
  if (family == AF_INET) {
    auto* four = reinterpret_cast<sockaddr_in*>(&result.first);
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    std::memcpy(&four->sin_addr, &bytes, 4);
    result.second = sizeof(sockaddr_in);
  } else {
    auto* six = reinterpret_cast<sockaddr_in6*>(&result.first);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    six->sin6_addr = bytes;
    result.second = sizeof(sockaddr_in6);
  }
  return result;
}

bool Address::same_network(const Address& other, int bits) const {
  if (family != other.family) return false;
  const int most = static_cast<int>(size(family)) * 8;
  for (int bit = 0; bit < bits && bit < most; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if (((bytes.s6_addr[bit / 8] ^ other.bytes.s6_addr[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN] = "?";
  if (family != AF_UNSPEC) inet_ntop(family, &bytes, buffer, sizeof buffer);
  return buffer;
}

void prepare_stream(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // After an outage the kernel tries again within this time, in milliseconds, rather than minutes later. Linux 6.15 or later.
  const int most_ms = 1000;
  setsockopt(fd, IPPROTO_TCP, kRetransmissionAtMost, &most_ms, sizeof most_ms);
}

Fd listen_on_any(int family, uint16_t* port) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw std::system_error(errno, std::generic_category(), "socket");
  auto [address, size] = Address::from_bytes(family, in6addr_any.s6_addr).with_port(0);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) throw std::system_error(errno, std::generic_category(), "bind");
  if (listen(fd.get(), 1024) != 0) throw std::system_error(errno, std::generic_category(), "listen");
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  // The port is at the same place in both families.
  *port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return fd;
}

Fd connect_from(const Address& local, const std::string& interface, const Address& remote, uint16_t port) {
  Fd fd(socket(remote.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  prepare_stream(fd.get());
  if (!interface.empty()) {
    // Keeps rails apart whose addresses are in one network. Old kernels want a privilege for it; then the route decides.
    setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.c_str(), static_cast<socklen_t>(interface.size()));
  }
  auto [from, from_size] = local.with_port(0);
  auto [to, to_size] = remote.with_port(port);
  // The port is chosen when the other end is known, so each other end has all ports.
  const int late = 1;
  setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof late);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&from), from_size) != 0) return Fd();
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), to_size) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

void end_connection(Fd& fd) {
  if (!fd) return;
  shutdown(fd.get(), SHUT_RDWR);
  fd.reset();
}

}  // namespace netpath
