// The protocol between the two ends of a communicator. A communicator has one direction: sender to receiver.
//
// A rail is a pair of addresses, one on each host. Each rail has several TCP connections, its streams. The sender opens all of
// them, again and again while they fail; the receiver's process listens on one port as long as it lives.
//
//   listen     The receiver makes a Handle: its addresses, its port, a random secret, and the answer to that secret.
//   greeting   A stream begins with Hello (secret, id of the communicator, rail, stream). The receiver closes it unless the secret
//              belongs to the listener, or to the communicator, of that id. It answers with Welcome (the answer).
//   grant      For each receive that is posted: its number and its size. Only granted messages are sent, so a receiver can always
//              read, and a stream that makes no progress is a failure or a stalled peer, never a slow application. Grants go over
//              each stream, and those of open receives are repeated on each new stream: none is lost with a rail.
//   data       A message is cut in chunks of `unit` bytes (the last one is shorter; a message of 0 bytes has one chunk). Any stream
//              may carry any chunk, more than once. The receiver writes a chunk whose message is open and which it does not have
//              yet. It reads and drops all others. A copy that begins while an older one arrives takes over; the stream of the older
//              one is closed if it ends first, because it may not be acknowledged.
//   ack        How many frames and bytes this stream has received. Every chunk of these frames has arrived as a whole, on this stream or
//              on another. A chunk that is not acknowledged in time goes over another stream.
//   probe      A frame without a message. It is acknowledged like data, and shows that the stream works and how fast it is.
//   bye        The sender closes; or the receiver does, with the number of the first message that it does not have.
//
// Frames of the sender are FrameHeader and payload; those of the receiver are Reply. Integers are little-endian.
//
// If the Hello asks for it, checksums (CRC-32C) are set and checked: of each header and reply by itself, before anything in it is used,
// and of the payload of each chunk. A stream on which one is wrong is closed, and the sender opens it again.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "abi.h"

namespace netpath::wire {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x32504e55;  // "UNP2": changes with the protocol
constexpr size_t kSecretBytes = 16;
constexpr size_t kMaxRails = 16;
constexpr size_t kMaxStreams = 16;  // per rail
constexpr size_t kMinUnit = size_t{1} << 12;
constexpr size_t kMaxUnit = size_t{1} << 22;
constexpr size_t kMaxMessage = size_t{1} << 30;

using Secret = std::array<uint8_t, kSecretBytes>;

struct Handle {
  uint32_t magic;
  uint16_t port;
  uint8_t family;  // 4 or 6
  uint8_t rails;
  uint64_t listener;
  Secret secret;
  uint64_t answer;
  uint8_t addresses[88];  // 4 or 16 bytes each, network order
};
static_assert(sizeof(Handle) == abi::kHandleBytes);

struct Hello {
  uint32_t magic;
  uint8_t rail;
  uint8_t stream;
  uint16_t flags;
  uint64_t listener;
  Secret secret;
  Secret communicator;
};
static_assert(sizeof(Hello) == 48);
constexpr uint16_t kWithChecksum = 1;

enum class Type : uint32_t { kData = 0x61746164, kProbe = 0x626f7270, kBye = 0x20657962, kAck = 0x206b6361, kGrant = 0x6e617267, kWelcome = 0x636c6577 };

struct FrameHeader {
  Type type;
  uint32_t length;   // of the payload
  uint64_t message;  // counts from 0
  uint64_t offset;   // of the chunk in the message
  uint32_t total;    // size of the message
  uint32_t unit;     // size of a chunk
  uint32_t checksum;         // of the payload of a chunk
  uint32_t header_checksum;  // of this header
};
static_assert(sizeof(FrameHeader) == 40);

struct Reply {
  Type type;
  uint32_t header_checksum;
  uint64_t first;   // ack: frames; grant: message; bye: messages received; welcome: the answer
  uint64_t second;  // ack: bytes; grant: size
};
static_assert(sizeof(Reply) == 24);

}  // namespace netpath::wire
