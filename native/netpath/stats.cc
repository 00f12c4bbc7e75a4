#include "stats.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "log.h"

namespace netpath {

Stats::Stats(const std::string& folder) {
  if (folder.empty()) return;
  char host[HOST_NAME_MAX + 1] = "host";
  gethostname(host, HOST_NAME_MAX);
  path_ = folder + "/understudy-net-" + host + "-" + std::to_string(getpid()) + ".jsonl";
}

std::shared_ptr<RailStats> Stats::rail(const std::string& interface, const std::string& local, const std::string& remote, const char* direction) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<RailStats>& found = rails_[{interface, local, remote, direction}];
  if (!found) found = std::make_shared<RailStats>();
  return found;
}

std::string Stats::text() {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  for (const auto& [key, rail] : rails_) {
    const auto& [interface, local, remote, direction] = key;  // none of them can contain a character that JSON escapes
    out << R"({"interface": ")" << interface << R"(", "local": ")" << local << R"(", "remote": ")" << remote << R"(", "direction": ")" << direction << '"';
    const auto field = [&](const char* name, auto value) { out << ", \"" << name << "\": " << value; };
    field("bytes", rail->bytes.load());
    field("chunks", rail->chunks.load());
    field("retransmits", rail->retransmits.load());
    field("duplicates", rail->duplicates.load());
    field("failovers", rail->failovers.load());
    field("stalls", rail->stalls.load());
    field("longest_stall_ms", rail->longest_stall_ms.load());
    field("reconnects", rail->reconnects.load());
    field("corrupt", rail->corrupt.load());
    field("rate_mb_s", rail->rate_mb_s.load());
    field("open", rail->open.load());
    out << "}\n";
  }
  out << "{\"refused\": " << refused_.load() << "}\n";
  return out.str();
}

void Stats::write() {
  if (path_.empty()) return;
  const std::lock_guard lock(file_);
  std::string now = text();
  if (now == written_) return;
  const std::string draft = path_ + ".new";
  bool good = static_cast<bool>(std::ofstream(draft, std::ios::trunc) << now << std::flush);
  good = good && std::rename(draft.c_str(), path_.c_str()) == 0;
  if (!good && !reported_) warn("cannot write the counters to %s: %s", path_.c_str(), std::strerror(errno));
  reported_ = !good;
  if (good) written_ = std::move(now);
}

}  // namespace netpath
