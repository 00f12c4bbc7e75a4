// The network interfaces of this host that can be rails, and the choice of rails between two hosts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "socket.h"

namespace netpath {

struct Nic {
  std::string name;
  int index = 0;
  Address address;
  int prefix = 0;    // bits of the network
  int speed = 0;     // Mbit/s, as the driver reports it; 10000 if it does not
  std::string pci;   // folder in /sys, "" if it is virtual
};

// Usable interfaces in the order of their indices: up, with an address, one address family for all (IPv4 if any has one). `choice`
// is as in NCCL_SOCKET_IFNAME: prefixes with commas, "=" before exact names, "^" before what is excluded. Without a choice,
// loopback and bridges of containers are left out, unless nothing else exists.
std::vector<Nic> find_nics(const std::string& choice);

// Queries links, because events about them can be late. Has a socket of its own, so that a query works without free descriptors too.
class Links {
 public:
  Links();  // throws std::system_error
  // Whether the interface exists, is up and has carrier now; nothing if that cannot be found out. From any thread.
  std::optional<bool> is_up(const std::string& name) const;

 private:
  const Fd fd_;
};

struct RailAddresses {
  Nic local;
  Address remote;
};

// Rails to a host: each of its addresses with the own interface in the same network; those that are left over in their order.
std::vector<RailAddresses> pair_rails(const std::vector<Nic>& own, const std::vector<Address>& remote);

}  // namespace netpath
