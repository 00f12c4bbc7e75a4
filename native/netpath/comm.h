// What both ends of a communicator share: requests, and the way from the application's thread to the loop.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi.h"
#include "loop.h"
#include "wire.h"

namespace netpath {

class Comm;

struct Request {
  enum State : int { kFree, kPending, kDone };
  std::atomic<int> state{kFree};
  Comm* comm = nullptr;
  char* data = nullptr;
  size_t size = 0;         // of the buffer
  size_t transferred = 0;  // valid when done
};

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  explicit Comm(std::shared_ptr<Loop> loop);
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // From the application's threads. `submit` leaves *request null if too many are in flight.
  abi::Result submit(void* data, size_t size, Request** request);
  abi::Result test(Request* request, int* done, int* size);
  void close();  // ends all that is under way
  // Keep this object until `close`: the application has a plain pointer to it.
  void keep() { kept_ = shared_from_this(); }
  bool failed() const { return failure_.load() != abi::kSuccess; }

 protected:
  // On the loop.
  virtual void start_request(Request* request) = 0;
  virtual void flush_requests() {}  // after one or more start_request
  virtual void stop() = 0;
  static void finish(Request* request, size_t transferred);
  // All later calls, and tests of open requests, return `result`.
  void fail(abi::Result result, const std::string& reason);

  const std::shared_ptr<Loop> loop_;

 private:
  void take_submitted();

  const pid_t process_;  // a forked process has no loop
  std::atomic<int> failure_{abi::kSuccess};
  std::mutex mutex_;
  std::array<Request, 2 * abi::kMaxRequests> requests_;
  std::vector<Request*> submitted_;  // guarded by mutex_
  std::shared_ptr<Comm> kept_;
};

}  // namespace netpath
