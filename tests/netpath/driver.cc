// Drives the plugin with host memory, without NCCL. One process receives, another one sends:
//
//   driver LIBRARY receive VERSION COMMS SIZE LIMIT   prints "handle HEX" for each communicator
//   driver LIBRARY send VERSION COMMS SIZE LIMIT HEX...
//
// SIZE: "N" for messages of N bytes that are not checked (for speed), or "random:SEED:N" for sizes from 0 to N. Both then check every
// byte: the content follows from communicator and number. The sender scribbles over a buffer as soon as its request is done. The
// receiver fills each buffer with a mark before it posts it and after it has checked it, and checks the mark around the message and
// before it uses the buffer again: so a byte that is written too late, or beyond the message, is noticed. The sender sends until it
// reads "stop", or until LIMIT seconds pass without any progress, and ends each communicator with a message of one byte. It prints
// "sent N" now and then. LIMIT also limits the receiver. With NETPATH_CHILD in its environment, the receiver forks a process that does
// nothing, and lives until the standard input ends. With NETPATH_HOLD, it posts nothing until it can read from the standard input. Both
// sides need at most 2 GB.
//
//   driver LIBRARY tables       each version of the tables, in turn, as a loader calls it
//   driver LIBRARY fork         a forked process, and one that is forked while data is under way
//   driver LIBRARY midway       communicators that are closed while data is under way
//   driver LIBRARY churn        threads that open and close communicators
//
// Exit code: 0: all is right; 3: wrong bytes; 4: a call returned an error; 5: no progress within the limit.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "api.h"
#include "content.h"
#include "lives.h"

namespace driver {
namespace {

struct Slot {
  std::vector<uint8_t> buffer;
  void* request = nullptr;
  uint64_t number = 0;
};

// Progress of all communicators together, and the gaps in it.
class Progress {
 public:
  explicit Progress(double limit) : limit_(limit) {}

  void message(size_t bytes) {
    const auto now = Clock::now();
    if (messages_++ == 0) began_ = now;
    else gaps_.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
    bytes_ += bytes;
  }
  void check() const {
    if (seconds_since(last_) > limit_) stop(5, "no progress within the limit, after " + std::to_string(messages_) + " messages");
  }
  uint64_t messages() const { return messages_; }
  void print() {
    std::sort(gaps_.begin(), gaps_.end());
    const auto at = [&](double share) { return gaps_.empty() ? 0.0 : gaps_[static_cast<size_t>(share * static_cast<double>(gaps_.size() - 1))]; };
    const double took = std::chrono::duration<double>(last_ - began_).count();
    std::printf("result {\"messages\": %lu, \"bytes\": %lu, \"seconds\": %.4f, \"mb_s\": %.1f, \"gap_ms\": {\"p50\": %.2f, \"p99\": %.2f, \"p999\": %.2f, \"max\": %.2f}}\n",
                messages_, bytes_, took, took > 0 ? static_cast<double>(bytes_) / took / 1e6 : 0.0, at(0.5), at(0.99), at(0.999), at(1));
    std::fflush(stdout);
  }

 private:
  const double limit_;
  uint64_t messages_ = 0, bytes_ = 0;
  Clock::time_point began_ = Clock::now(), last_ = began_;
  std::vector<double> gaps_;
};

class Receiving {
 public:
  Receiving(const Api& api, const Sizes& sizes, size_t number, void* comm) : api_(api), sizes_(sizes), number_(number), comm_(comm), slots_(sizes.slots()) {
    for (Slot& slot : slots_) slot.buffer.assign(sizes.most + kBeyond, kMark);
  }

  bool ended() const { return ended_; }
  void close() { must(api_.close_recv(comm_), "closeRecv"); }

  void work(Progress& progress) {
    const int failure = failure_;
    while (!ended_ && received_ < posted_) {
      Slot& slot = slots_[received_ % slots_.size()];
      int done = 0, size = 0;
      const int result = api_.test(slot.request, &done, &size);
      if (result != 0) failure_ = result;
      if (done == 0) break;
      check(slot, static_cast<size_t>(size));
      progress.message(static_cast<size_t>(size));
      ++received_;
    }
    // The sender may close as soon as its last message has arrived, so a failure counts when nothing has arrived after it.
    if (!ended_) must(failure, "irecv or test");
    while (!ended_ && failure_ == 0 && posted_ - received_ < sizes_.window()) {
      Slot& slot = slots_[posted_ % slots_.size()];
      if (sizes_.checked && !all_are(slot.buffer.data(), slot.buffer.size(), kMark)) stop(3, "bytes were written after a message was complete");
      failure_ = api_.irecv(comm_, slot.buffer.data(), slot.buffer.size(), &slot.request);
      if (failure_ != 0 || slot.request == nullptr) break;
      slot.number = posted_++;
    }
  }

 private:
  void check(Slot& slot, size_t size) {
    ended_ = size == 1;
    if (ended_ || !sizes_.checked) return;
    if (size != sizes_.of(number_, slot.number)) stop(3, "message " + std::to_string(slot.number) + " has " + std::to_string(size) + " bytes");
    if (!matches(slot.buffer.data(), size, sizes_.seed_of(number_, slot.number))) stop(3, "message " + std::to_string(slot.number) + " has wrong bytes");
    if (!all_are(slot.buffer.data() + size, slot.buffer.size() - size, kMark)) stop(3, "bytes beyond a message were written");
    std::fill(slot.buffer.begin(), slot.buffer.begin() + static_cast<ptrdiff_t>(size), kMark);
  }

  const Api& api_;
  const Sizes& sizes_;
  const size_t number_;
  void* const comm_;
  std::vector<Slot> slots_;
  uint64_t posted_ = 0, received_ = 0;
  bool ended_ = false;
  int failure_ = 0;
};

class Sending {
 public:
  Sending(const Api& api, const Sizes& sizes, size_t number, void* comm) : api_(api), sizes_(sizes), number_(number), comm_(comm), slots_(sizes.window()) {
    for (Slot& slot : slots_) slot.buffer.assign(sizes.most + 8, 0);
  }

  bool ended() const { return end_posted_ && sent_ == posted_; }
  void close() { must(api_.close_send(comm_), "closeSend"); }

  void work(Progress& progress, bool stopping) {
    while (sent_ < posted_) {
      Slot& slot = slots_[sent_ % slots_.size()];
      int done = 0, size = 0;
      must(api_.test(slot.request, &done, &size), "test");
      if (done == 0) break;
      if (sizes_.checked) std::fill(slot.buffer.begin(), slot.buffer.end(), kScribble);
      progress.message(static_cast<size_t>(size));
      ++sent_;
    }
    while (!end_posted_ && posted_ - sent_ < sizes_.window()) {
      Slot& slot = slots_[posted_ % slots_.size()];
      const size_t size = stopping ? 1 : sizes_.of(number_, posted_);
      if (sizes_.checked) fill(slot.buffer.data(), size, sizes_.seed_of(number_, posted_));
      must(api_.isend(comm_, slot.buffer.data(), size, &slot.request), "isend");
      if (slot.request == nullptr) break;
      ++posted_;
      end_posted_ = stopping;
    }
  }

 private:
  const Api& api_;
  const Sizes& sizes_;
  const size_t number_;
  void* const comm_;
  std::vector<Slot> slots_;
  uint64_t posted_ = 0, sent_ = 0;
  bool end_posted_ = false;
};

std::string to_hex(const uint8_t* bytes) {
  std::string text;
  for (size_t i = 0; i < abi::kHandleBytes; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", bytes[i]);
    text += two;
  }
  return text;
}

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class Call>
void* until_comm(Call call, const char* what, double limit) {
  const auto began = Clock::now();
  void* comm = nullptr;
  while (comm == nullptr) {
    must(call(&comm), what);
    if (seconds_since(began) > limit) stop(5, std::string(what) + " did not finish within the limit");
    if (comm == nullptr) rest();
  }
  return comm;
}

void receive(const Api& api, size_t comms, const Sizes& sizes, double limit) {
  std::vector<void*> listening(comms);
  for (void*& one : listening) {
    uint8_t handle[abi::kHandleBytes];
    must(api.listen(handle, &one), "listen");
    std::printf("handle %s\n", to_hex(handle).c_str());
  }
  std::fflush(stdout);
  std::deque<Receiving> all;
  for (size_t i = 0; i < comms; ++i) {
    all.emplace_back(api, sizes, i, until_comm([&](void** comm) { return api.accept(listening[i], comm); }, "accept", limit));
    must(api.close_listen(listening[i]), "closeListen");
  }
  if (std::getenv("NETPATH_CHILD") != nullptr && fork() == 0) {
    pollfd input{0, POLLIN, 0};
    poll(&input, 1, -1);
    std::_Exit(0);
  }
  if (std::getenv("NETPATH_HOLD") != nullptr) {
    pollfd input{0, POLLIN, 0};
    poll(&input, 1, -1);
  }
  Progress progress(limit);
  while (!std::all_of(all.begin(), all.end(), [](const Receiving& one) { return one.ended(); })) {
    for (Receiving& one : all) one.work(progress);
    progress.check();
    rest();
  }
  for (Receiving& one : all) one.close();
  progress.print();
}

void send(const Api& api, const Sizes& sizes, double limit, const std::vector<std::string>& handles) {
  std::deque<Sending> all;
  for (const std::string& text : handles) {
    std::vector<uint8_t> handle = from_hex(text);
    all.emplace_back(api, sizes, all.size(), until_comm([&](void** comm) { return api.connect(handle.data(), comm); }, "connect", limit));
  }
  Progress progress(limit);
  bool stopping = false;
  uint64_t printed = 0;
  auto looked = Clock::now();
  while (!std::all_of(all.begin(), all.end(), [](const Sending& one) { return one.ended(); })) {
    for (Sending& one : all) one.work(progress, stopping);
    progress.check();
    if (seconds_since(looked) > 0.01) {
      looked = Clock::now();
      pollfd input{0, POLLIN, 0};
      if (!stopping && poll(&input, 1, 0) > 0) stopping = true;  // "stop", or the end of the input
      if (progress.messages() != printed) std::printf("sent %lu\n", printed = progress.messages());
      std::fflush(stdout);
    }
    rest();
  }
  for (Sending& one : all) one.close();
  progress.print();
}

}  // namespace
}  // namespace driver

int main(int count, char** words) {
  using namespace driver;
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() < 2) stop(2, "see the top of driver.cc");
  const std::string& mode = arguments[1];
  if (mode == "tables") {
    tables(words[1]);
    return 0;
  }
  const bool pair = mode == "receive" || mode == "send";
  if (pair && arguments.size() < 6) stop(2, "see the top of driver.cc");
  const Api api = open_table(open_library(words[1]), pair ? std::stoi(arguments[2]) : 12);
  must(api.init(), "init");
  if (mode == "fork") forks(api);
  if (mode == "midway") midway(api);
  if (mode == "churn") churn(api);
  if (pair) {
    const Sizes sizes = Sizes::parse(arguments[4]);
    const size_t comms = mode == "receive" ? std::stoul(arguments[3]) : arguments.size() - 6;
    if (sizes.slots() * comms * (sizes.most + kBeyond) > kMostMemory) stop(2, "so many messages of this size need more than 2 GB");
    const double limit = std::stod(arguments[5]);
    if (mode == "receive") receive(api, std::stoul(arguments[3]), sizes, limit);
    if (mode == "send") send(api, sizes, limit, {arguments.begin() + 6, arguments.end()});
  }
  must(api.finalize(), "finalize");
}
