// Messages through NCCL's own logger, so that NCCL_DEBUG selects them.
#pragma once

#include "abi.h"

namespace netpath {

void set_logger(abi::Logger logger);

[[gnu::format(printf, 1, 2)]] void warn(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void info(const char* format, ...);

}  // namespace netpath
