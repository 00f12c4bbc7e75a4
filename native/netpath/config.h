// What the environment sets. A value that makes no sense is refused by init, with the variable and what is allowed.
#pragma once

#include <chrono>
#include <string>

namespace netpath {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Seconds = std::chrono::duration<double>;

struct Config {
  std::string interfaces;      // UNDERSTUDY_NET_IFNAME, else NCCL_SOCKET_IFNAME; "": all that are usable
  int streams = 2;             // UNDERSTUDY_NET_SOCKETS: TCP connections per rail
  int threads = 2;             // UNDERSTUDY_NET_THREADS: threads that move data, shared by all communicators
  Seconds give_up{300};        // UNDERSTUDY_NET_GIVE_UP_S: silence of a peer on all rails after which requests fail
  bool checksum = false;       // UNDERSTUDY_NET_CRC
  std::string stats_folder;    // UNDERSTUDY_NET_STATS; "": none

  // Read the environment. Throws std::invalid_argument.
  static Config from_environment();
};

}  // namespace netpath
