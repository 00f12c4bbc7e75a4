// File descriptors with an owner, addresses, and TCP sockets that never block.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

namespace netpath {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) { reset(fd); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// In a forked process: close its copies of all descriptors, so that connections end with the process that uses them.
void close_all_in_forked_process();

// An IPv4 or IPv6 address without a port.
struct Address {
  int family = AF_UNSPEC;
  in6_addr bytes{};  // of an IPv4 address, the first four

  static Address of(const sockaddr* from);
  static Address from_bytes(int family, const uint8_t* bytes);
  static size_t size(int family) { return family == AF_INET ? 4 : 16; }

  // The same address with a port, as the kernel wants it.
  std::pair<sockaddr_storage, socklen_t> with_port(uint16_t port) const;
  // Whether the first `bits` bits are those of `other`.
  bool same_network(const Address& other, int bits) const;
  std::string text() const;
  bool operator==(const Address& other) const { return family == other.family && same_network(other, 128); }
};

// A listener on all addresses of `family`; writes its port. Throws std::system_error.
Fd listen_on_any(int family, uint16_t* port);

// Begin to connect from `local` on `interface` (if not empty). Returns an invalid Fd and sets errno if it fails at once.
Fd connect_from(const Address& local, const std::string& interface, const Address& remote, uint16_t port);

// Options of every stream: no delay, and short pauses between retransmissions.
void prepare_stream(int fd);

// End the connection for the peer too, even if a forked process has the descriptor.
void end_connection(Fd& fd);

}  // namespace netpath
