// Sizes and content of messages, which both sides know, and the marks around them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace driver {

inline constexpr size_t kWindow = 8;      // requests in flight per communicator
inline constexpr size_t kBeyond = 512;    // a receive is so much larger than the largest send
inline constexpr size_t kMostMemory = 2'000'000'000;  // bytes of buffers, of all communicators
inline constexpr uint8_t kMark = 0xa7, kScribble = 0x5c;

struct Sizes {
  bool checked = false;
  uint64_t seed = 0;
  size_t most = 0;

  static Sizes parse(const std::string& text) {
    Sizes sizes;
    if (text.rfind("random:", 0) == 0) {
      const size_t colon = text.find(':', 7);
      sizes.checked = true;
      sizes.seed = std::stoull(text.substr(7, colon - 7));
      sizes.most = std::stoull(text.substr(colon + 1));
    } else {
      sizes.most = std::stoull(text);
    }
    return sizes;
  }

  // Requests in flight; few of large messages, so that they fit into the memory.
  size_t window() const { return std::clamp<size_t>((size_t{1} << 28) / (most + 1), 1, kWindow); }

  // Buffers of a receiver. If bytes are checked, a buffer is used again only after a while: what is written too late is noticed then.
  size_t slots() const { return checked ? 2 * window() : window(); }

  uint64_t seed_of(size_t comm, uint64_t number) const { return (seed * 1000003 + comm) * 1000003 + number; }

  // Many are small, some are empty; 1 is the end.
  size_t of(size_t comm, uint64_t number) const {
    if (!checked) return most;
    std::mt19937_64 random(seed_of(comm, number));
    const double share = static_cast<double>(random() >> 11) / 9007199254740992.0;
    const auto size = static_cast<size_t>(share * share * share * static_cast<double>(most + 1));
    return size == 1 ? 2 : size;
  }
};

inline uint64_t word(uint64_t seed, uint64_t index) { return (seed + index) * 0x9e3779b97f4a7c15u; }

inline void fill(uint8_t* to, size_t size, uint64_t seed) {
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const uint64_t value = word(seed, i);
    std::memcpy(to + i, &value, 8);
  }
  const uint64_t value = word(seed, i);
  std::memcpy(to + i, &value, size - i);
}

inline bool matches(const uint8_t* data, size_t size, uint64_t seed) {
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const uint64_t value = word(seed, i);
    if (std::memcmp(data + i, &value, 8) != 0) return false;
  }
  const uint64_t value = word(seed, i);
  return std::memcmp(data + i, &value, size - i) == 0;
}

inline bool all_are(const uint8_t* data, size_t size, uint8_t value) {
  return size == 0 || (data[0] == value && std::memcmp(data, data + 1, size - 1) == 0);
}

}  // namespace driver
