// Counters of rails, for other processes.
//
// In the folder UNDERSTUDY_NET_STATS, each process rewrites one file about once a second, if something has changed, and when a
// communicator is closed: `understudy-net-HOST-PID.jsonl`. It is replaced as a whole, so a reader never sees half of it. Each line is
// a JSON object, about one rail in one direction:
//   interface, local, remote  its interface and its addresses
//   direction                 "send" or "receive"
//   bytes, chunks             payload that arrived and was used (send: that was acknowledged)
//   retransmits               chunks that were sent again because of this rail (send)
//   duplicates                chunks that arrived although they were there already (receive)
//   failovers                 how often a stream ended or was late, so that others carried what it would have (send)
//   stalls, longest_stall_ms  how often, and how long at most, it was silent beyond the limit while data was under way (send)
//   reconnects                streams that were opened again (send)
//   corrupt                   headers, payloads and replies whose checksum was wrong
//   rate_mb_s                 the measured rate, in 10^6 bytes per second; 0: not measured
//   open                      streams that are open now
// and one line has {"refused": N}: the connections that did not prove to belong here.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

namespace netpath {

struct RailStats {
  using Count = std::atomic<uint64_t>;
  Count bytes{0}, chunks{0}, retransmits{0}, duplicates{0}, failovers{0}, stalls{0}, longest_stall_ms{0}, reconnects{0}, corrupt{0}, rate_mb_s{0};
  std::atomic<int64_t> open{0};
};

class Stats {
 public:
  explicit Stats(const std::string& folder);  // "": counts, but writes nothing

  // The counters of a rail; communicators with the same rail share them.
  std::shared_ptr<RailStats> rail(const std::string& interface, const std::string& local, const std::string& remote, const char* direction);
  void refused() { ++refused_; }
  // Write the file if the counters have changed. A folder that cannot be written is reported once.
  void write();

 private:
  std::string text();

  std::string path_;
  std::mutex mutex_;  // never held while a file is written
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::shared_ptr<RailStats>> rails_;  // guarded by mutex_
  std::mutex file_;                                                                                           // one thread writes
  std::string written_;                                                                                       // guarded by file_
  bool reported_ = false;                                                                                     // guarded by file_
  std::atomic<uint64_t> refused_{0};
};

}  // namespace netpath
