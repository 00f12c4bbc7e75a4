#include "crc.h"

#include <array>
#include <cstring>

namespace netpath {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // of CRC-32C, bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t by_table(uint32_t state, const uint8_t* data, size_t size) {
  while (size-- > 0) state = (state >> 8) ^ kTable[(state ^ *data++) & 0xff];
  return state;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] uint32_t by_instruction(uint32_t state, const uint8_t* data, size_t size) {
  uint64_t wide = state;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  while (size-- > 0) state = __builtin_ia32_crc32qi(state, *data++);
  return state;
}
#endif

}  // namespace

uint32_t crc32c(uint32_t before, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(~before, bytes, size);
#endif
  return ~by_table(~before, bytes, size);
}

}  // namespace netpath
