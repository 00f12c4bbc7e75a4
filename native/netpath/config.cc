#include "config.h"

#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "wire.h"

namespace netpath {
namespace {

std::string text(const char* name, const char* otherwise = "") {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

double number(const char* name, double otherwise, double least, double most) {
  const std::string value = text(name);
  if (value.empty()) return otherwise;
  char* end = nullptr;
  const double parsed = std::strtod(value.c_str(), &end);
  if (*end != '\0' || !std::isfinite(parsed) || parsed < least || parsed > most) {
    throw std::invalid_argument(std::string(name) + "=" + value + " is not a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return parsed;
}

int whole(const char* name, int otherwise, int least, int most) {
  const double value = number(name, otherwise, least, most);
  if (value != std::floor(value)) throw std::invalid_argument(std::string(name) + " is not a whole number");
  return static_cast<int>(value);
}

}  // namespace

Config Config::from_environment() {
  Config config;
  config.interfaces = text("UNDERSTUDY_NET_IFNAME", text("NCCL_SOCKET_IFNAME").c_str());
  config.streams = whole("UNDERSTUDY_NET_SOCKETS", config.streams, 1, wire::kMaxStreams);
  config.threads = whole("UNDERSTUDY_NET_THREADS", config.threads, 1, 64);
  config.give_up = Seconds(number("UNDERSTUDY_NET_GIVE_UP_S", config.give_up.count(), 3, 1e6));
  config.checksum = whole("UNDERSTUDY_NET_CRC", 0, 0, 1) == 1;
  config.stats_folder = text("UNDERSTUDY_NET_STATS");
  struct stat found {};
  if (!config.stats_folder.empty() && (stat(config.stats_folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode))) {
    throw std::invalid_argument("UNDERSTUDY_NET_STATS=" + config.stats_folder + " is not a folder: create it, or unset the variable");
  }
  return config;
}

}  // namespace netpath
