// The sending end of a communicator: cuts messages in chunks, spreads them over streams, and sends again what is not acknowledged.
//
// When is a stream late? It carries frames, has acknowledged nothing for longer than the limit, and *another* stream has acknowledged
// something since. If no stream does, the peer is stalled (or all rails are cut), and none is suspected. When a stream is nearly late,
// idle streams get a probe, so that there is something to compare with. The chunks of a late stream are queued again; it stays open,
// and is used again when an acknowledgement comes. If none comes for a second, it is closed and opened again.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm.h"
#include "nic.h"
#include "stats.h"

namespace netpath {

class Sender;

struct Chunk {
  uint64_t message;
  uint64_t offset;
  uint32_t total;
  uint32_t length;
  uint32_t unit;
  const char* data;
  bool acknowledged = false;  // then `data` may not be read any more
};

// One pair of addresses. Its streams share what is measured.
struct Rail {
  int number;
  RailAddresses addresses;
  std::shared_ptr<RailStats> stats;
  bool link_up = true;
  double rate;                 // bytes per second, measured
  uint64_t in_flight = 0;      // bytes that are not acknowledged
  uint64_t delivered = 0;      // bytes that were acknowledged
  Time last_data{};            // when it last carried a chunk

  uint64_t window() const;
  void measure(double sample, bool was_busy);
};

class SenderStream : public Handler {
 public:
  enum class State { kClosed, kConnecting, kGreeting, kProving, kOpen };

  SenderStream(Sender& comm, Loop& loop, Rail& rail, int number);
  ~SenderStream() override;

  void on_ready(uint32_t events) override;
  void start(std::shared_ptr<Chunk> chunk);  // only if ready()
  void probe(uint32_t bytes);                // only if ready()
  void close(Time retry_at);  // a failure: what is not acknowledged is queued again
  void end();                 // without a bye, and for ever
  void link_returned(Time now);  // try at once
  void tick(Time now);
  void say_bye();

  bool ready() const { return state_ == State::kOpen && !frame_; }  // can take another frame now
  bool is_open() const { return state_ == State::kOpen; }
  bool idle() const { return state_ == State::kOpen && in_flight_.empty(); }
  bool late() const { return late_; }
  bool refused() const { return refused_; }
  bool opened_before() const { return opened_before_; }
  Time last_ack() const { return last_ack_; }
  uint64_t in_flight() const { return bytes_in_flight_; }
  Rail& rail() { return rail_; }

 private:
  struct Frame {
    std::shared_ptr<Chunk> chunk;  // null: a probe
    uint32_t length;
    Time sent;
    uint64_t delivered_before;
    bool busy;
    bool queued_again = false;
  };
  void open(Time now);
  void connected();
  void read_replies();
  bool handle(const wire::Reply& reply);
  bool acknowledge(uint64_t frames, uint64_t bytes);
  void begin(std::shared_ptr<Chunk> chunk, uint32_t length);
  void write();
  void queue_again();
  void check_progress(Time now);
  void progressed(Time now);
  void note_stall(Time now);
  void fail(Time now);

  Sender& comm_;
  Loop& loop_;
  Rail& rail_;
  const int number_;
  State state_ = State::kClosed;
  Fd fd_;
  Loop::Watch watch_ = 0;
  bool refused_ = false, late_ = false, opened_before_ = false;
  Time retry_at_{}, welcomed_{}, since_{};  // of the state
  Seconds round_trip_{0};
  bool frame_ = false;  // the last frame of in_flight_ is not written as a whole
  wire::FrameHeader header_{};
  size_t written_ = 0;
  std::deque<Frame> in_flight_;
  uint64_t bytes_in_flight_ = 0;
  uint64_t acked_frames_ = 0, acked_bytes_ = 0;
  Time last_ack_{}, waiting_since_{};
  wire::Reply reply_{};
  size_t reply_bytes_ = 0;
};

class Sender : public Comm {
 public:
  Sender(std::shared_ptr<Loop> loop, std::shared_ptr<Stats> stats, std::shared_ptr<const Links> links, const std::vector<Nic>& nics,
         const wire::Handle& handle, const Config& config);

  bool connected() const { return connected_.load(); }
  bool has_rails() const { return !rails_.empty(); }
  // From any thread.
  void post_begin();
  void post_link(const std::string& interface, bool up);

  // For streams, on the loop.
  const wire::Handle& handle() const { return handle_; }
  const Config& config() const { return config_; }
  const wire::Secret& id() const { return id_; }
  void pump();  // give chunks to streams
  bool granted(uint64_t message, uint64_t size);  // false: the receiver breaks the protocol
  void acknowledged(Chunk& chunk);
  void again(std::shared_ptr<Chunk> chunk);
  void alive(Time now);
  bool busy(Time now) const;  // data was sent a moment ago
  void peer_closed(uint64_t received);
  bool another_acknowledged(const SenderStream& late, Time since) const;
  void probe_idle(const SenderStream& late);

 private:
  struct Message {
    Request* request;
    std::optional<uint64_t> grant;
    uint32_t unit = 0;
    uint64_t cut = 0;      // bytes that are in chunks
    bool all_cut = false;
    size_t missing = 0;    // chunks that are not acknowledged
  };
  void begin();
  void link_changed(const std::string& interface, bool up);
  void start_request(Request* request) override;
  void flush_requests() override { pump(); }
  void stop() override;
  void tick(Time now);
  void take_next();
  void cut_messages();
  bool usable(const SenderStream& stream) const;
  void give_up(abi::Result result, const std::string& reason);
  void finish_message(uint64_t message);
  void check_connected(Time now);
  void check_links(Time now);
  void check_peer(Time now);
  SenderStream* choose(uint32_t length);
  uint32_t unit_for(uint64_t size) const;

  const std::shared_ptr<Stats> all_stats_;
  const std::shared_ptr<const Links> links_;
  const wire::Handle handle_;
  const Config config_;
  wire::Secret id_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::vector<std::unique_ptr<SenderStream>> streams_;
  std::deque<Message> messages_;
  uint64_t first_ = 0;                                // number of messages_.front()
  uint64_t uncut_ = 0;                                // number of the first message that is not in chunks as a whole
  std::unordered_map<uint64_t, uint64_t> grants_;     // for messages that are not posted yet
  std::deque<std::shared_ptr<Chunk>> again_;          // to be sent again, before new ones
  std::shared_ptr<Chunk> next_;                       // the chunk that is sent next
  uint64_t queued_ = 0;                               // granted bytes that no stream has, without next_
  std::atomic<bool> connected_{false};
  bool pumping_ = false, stopped_ = false;
  Time first_open_{}, last_alive_{}, last_data_{}, waiting_since_{}, refused_since_{}, links_checked_{};
  uint64_t ticker_ = 0;
};

}  // namespace netpath
