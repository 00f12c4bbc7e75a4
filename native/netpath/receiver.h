// The receiving end of a communicator: writes each chunk into the buffer of its message, once, and acknowledges it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm.h"
#include "stats.h"

namespace netpath {

class Receiver;

// One connection from the sender. Its payload goes straight into the buffer, or is dropped.
class ReceiverStream : public Handler {
 public:
  ReceiverStream(Receiver& comm, Loop& loop, Fd fd, std::shared_ptr<RailStats> stats, bool checksum);
  ~ReceiverStream() override;

  void on_ready(uint32_t events) override;
  void reply(wire::Type type, uint64_t first, uint64_t second);
  void flush();  // send what `reply` has queued
  // A newer copy of the chunk that is arriving has begun elsewhere: drop the rest of this one.
  void divert() {
    target_ = nullptr;
    diverted_ = true;
  }
  bool receives(uint64_t message, uint64_t offset) const { return in_payload_ && target_ != nullptr && header_.message == message && header_.offset == offset; }
  void say_bye(uint64_t received);
  void end();  // close the connection; nothing is read any more

 private:
  enum class Read { kMore, kEmpty, kClosed };
  Read read_some();
  bool header_arrived();
  bool payload_arrived();
  bool corrupt();
  void acknowledge();
  void arm();

  Receiver& comm_;
  Loop& loop_;
  Fd fd_;
  const std::shared_ptr<RailStats> stats_;
  const bool checksum_;
  Loop::Watch watch_;
  bool wants_to_write_ = false;
  wire::FrameHeader header_{};
  size_t header_bytes_ = 0;
  bool in_payload_ = false;
  bool diverted_ = false;
  char* target_ = nullptr;   // where the payload goes; null: nowhere
  size_t payload_bytes_ = 0;
  uint64_t frames_ = 0, bytes_ = 0;              // received
  uint64_t acked_frames_ = 0, acked_bytes_ = 0;  // reported
  Time last_ack_{};
  std::string out_;
};

class Receiver : public Comm {
 public:
  Receiver(std::shared_ptr<Loop> loop, std::shared_ptr<Stats> stats, const Config& config);

  uint64_t messages_received() const { return received_.load(); }

  // On the loop.
  void adopt(Fd fd, const wire::Hello& hello, uint64_t answer, const std::string& interface, const Address& local, const Address& remote);
  // For a stream: where the payload of this chunk goes, or null if it is to be dropped. False: the sender breaks the protocol.
  bool place(const wire::FrameHeader& header, char** target);
  void chunk_arrived(const wire::FrameHeader& header);
  bool has(const wire::FrameHeader& header) const;  // the chunk has arrived as a whole
  void frame_was_corrupt();
  void heard() { last_heard_ = loop_->now(); }
  void peer_closed();
  void drop(ReceiverStream* stream, bool by_peer);

 private:
  struct Message {
    Request* request;
    size_t total = 0;
    uint32_t unit = 0;  // 0: no chunk has come yet
    std::vector<bool> arrived;
    size_t missing = 0;
  };
  void give_up(abi::Result result, const std::string& reason);
  void retire(std::unique_ptr<ReceiverStream> stream);
  void start_request(Request* request) override;
  void flush_requests() override;
  void stop() override;
  void tick(Time now);
  bool is_open(uint64_t message) const { return message >= first_ && message - first_ < messages_.size() && messages_[message - first_].request != nullptr; }

  const std::shared_ptr<Stats> all_stats_;
  const Config config_;
  std::map<std::pair<int, int>, std::unique_ptr<ReceiverStream>> streams_;  // by rail and number
  std::vector<std::unique_ptr<ReceiverStream>> dropped_;                    // may still be running; freed by the next tick
  std::deque<Message> messages_;                                            // posted and not received, and those after them
  uint64_t first_ = 0;                                                      // number of messages_.front()
  uint64_t granted_ = 0;                                                    // number of the first receive without a grant
  std::atomic<uint64_t> received_{0};                                       // = first_, for other threads
  int corrupt_in_a_row_ = 0;
  bool stopped_ = false;
  Time last_heard_{}, no_stream_since_{}, waiting_since_{};
  bool ended_by_peer_ = false;  // the last stream was closed by the peer, not by a fault of the path
  uint64_t ticker_ = 0;
#ifdef UNDERSTUDY_BREAK_DEDUPE
  std::map<uint64_t, char*> finished_;
#endif
};

}  // namespace netpath
