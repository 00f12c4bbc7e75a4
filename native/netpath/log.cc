#include "log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace netpath {
namespace {

std::atomic<abi::Logger> the_logger{nullptr};

void log(abi::LogLevel level, const char* format, va_list arguments) {
  const abi::Logger logger = the_logger.load();
  if (logger == nullptr) return;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  logger(level, abi::kLogNet, "netpath", 0, "NET/Understudy : %s", line);
}

}  // namespace

void set_logger(abi::Logger logger) { the_logger = logger; }

void warn(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log(abi::kLogWarn, format, arguments);
  va_end(arguments);
}

void info(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log(abi::kLogInfo, format, arguments);
  va_end(arguments);
}

}  // namespace netpath
