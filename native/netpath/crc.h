// CRC-32C (Castagnoli), by the processor's instruction where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace netpath {

// The checksum of `size` bytes that follow those of which `before` is the checksum; 0 at the beginning.
uint32_t crc32c(uint32_t before, const void* data, size_t size);

}  // namespace netpath
