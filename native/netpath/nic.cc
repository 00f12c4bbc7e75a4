#include "nic.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "wire.h"

namespace netpath {
namespace {

int prefix_of(const sockaddr* mask, int family) {
  if (mask == nullptr) return static_cast<int>(Address::size(family)) * 8;
  const uint8_t* bytes = family == AF_INET ? reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                                           : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
  int bits = 0;
  for (size_t i = 0; i < Address::size(family); ++i) bits += std::popcount(bytes[i]);
  return bits;
}

int speed_of(const std::string& name) {
  int speed = 0;
  std::ifstream("/sys/class/net/" + name + "/speed") >> speed;
  return speed > 0 ? speed : 10000;
}

std::string pci_of(const std::string& name) {
  char resolved[PATH_MAX];
  if (realpath(("/sys/class/net/" + name + "/device").c_str(), resolved) == nullptr) return "";
  return resolved;
}

class Choice {
 public:
  explicit Choice(std::string text) {
    if (!text.empty() && (text[0] == '^' || text[0] == '=')) {
      excludes_ = text[0] == '^';
      exact_ = text[0] == '=';
      text.erase(0, 1);
      if (excludes_ && !text.empty() && text[0] == '=') {
        exact_ = true;
        text.erase(0, 1);
      }
    }
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
      if (!part.empty()) names_.push_back(part);
    }
  }

  bool empty() const { return names_.empty(); }
  bool takes(const std::string& name) const {
    const bool named = std::any_of(names_.begin(), names_.end(), [&](const std::string& one) { return exact_ ? name == one : name.starts_with(one); });
    return named != excludes_;
  }

 private:
  std::vector<std::string> names_;
  bool excludes_ = false, exact_ = false;
};

std::vector<Nic> addresses(const Choice& choice, int family) {
  std::vector<Nic> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_UP) == 0) continue;
    const auto* six = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue;
    const std::string name = one->ifa_name;
    if (!choice.takes(name) || std::any_of(found.begin(), found.end(), [&](const Nic& nic) { return nic.name == name; })) continue;
    found.push_back({name, static_cast<int>(if_nametoindex(name.c_str())), Address::of(one->ifa_addr), prefix_of(one->ifa_netmask, family),
                     speed_of(name), pci_of(name)});
  }
  freeifaddrs(all);
  std::sort(found.begin(), found.end(), [](const Nic& a, const Nic& b) { return a.index < b.index; });
  return found;
}

std::vector<Nic> of_one_family(const Choice& choice) {
  std::vector<Nic> found = addresses(choice, AF_INET);
  return found.empty() ? addresses(choice, AF_INET6) : found;
}

}  // namespace

std::vector<Nic> find_nics(const std::string& choice) {
  std::vector<Nic> found;
  if (const Choice given(choice); !given.empty()) {
    found = of_one_family(given);
  } else {
    found = of_one_family(Choice("^lo,docker,virbr,cni,veth-"));
    if (found.empty()) found = of_one_family(Choice("=lo"));
  }
  if (!found.empty()) found.resize(std::min(found.size(), found[0].address.family == AF_INET ? wire::kMaxRails : size_t{5}));
  return found;
}

Links::Links() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  if (!fd_) throw std::system_error(errno, std::generic_category(), "socket");
}

std::optional<bool> Links::is_up(const std::string& name) const {
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd_.get(), SIOCGIFFLAGS, &request) != 0) return errno == ENODEV ? std::optional(false) : std::nullopt;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

std::vector<RailAddresses> pair_rails(const std::vector<Nic>& own, const std::vector<Address>& remote) {
  std::vector<RailAddresses> rails;
  std::vector<bool> own_used(own.size()), remote_used(remote.size());
  const auto pair = [&](bool any_network) {
    for (size_t j = 0; j < remote.size(); ++j) {
      for (size_t i = 0; i < own.size() && !remote_used[j]; ++i) {
        if (own_used[i] || own[i].address.family != remote[j].family) continue;
        if (!any_network && !own[i].address.same_network(remote[j], own[i].prefix)) continue;
        rails.push_back({own[i], remote[j]});
        own_used[i] = remote_used[j] = true;
      }
    }
  };
  pair(false);
  pair(true);
  return rails;
}

}  // namespace netpath
