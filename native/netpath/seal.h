// The checksum of a frame's header or of a reply by itself. `wanted`: whether the Hello has asked for checksums.
#pragma once

#include "crc.h"
#include "wire.h"

namespace netpath {

template <class Header>
uint32_t header_checksum(Header header) {
  header.header_checksum = 0;
  return crc32c(0, &header, sizeof header);
}

// Call it when all other fields are set.
template <class Header>
void seal(Header* header, bool wanted) {
  if (wanted) header->header_checksum = header_checksum(*header);
}

template <class Header>
bool intact(const Header& header, bool wanted) {
  return !wanted || header.header_checksum == header_checksum(header);
}

inline wire::Reply reply_of(wire::Type type, uint64_t first, uint64_t second, bool wanted) {
  wire::Reply reply{type, 0, first, second};
  seal(&reply, wanted);
  return reply;
}

inline bool wants_checksums(const wire::Hello& hello) { return (hello.flags & wire::kWithChecksum) != 0; }

#ifdef UNDERSTUDY_BREAK_HEADER
// Every 64th header or reply leaves with one bit changed, a different one each time.
template <class Header>
void damage(Header* header) {
  static thread_local uint64_t sealed = 0;
  if (++sealed % 64 != 0) return;
  const uint64_t bit = sealed / 64 * 37 % (sizeof *header * 8);
  reinterpret_cast<uint8_t*>(header)[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
}
#else
template <class Header>
void damage(Header*) {}
#endif

}  // namespace netpath
