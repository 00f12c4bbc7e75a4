#include "comm.h"

#include <unistd.h>

#include <algorithm>

#include "log.h"

namespace netpath {

Comm::Comm(std::shared_ptr<Loop> loop) : loop_(std::move(loop)), process_(getpid()) {}

abi::Result Comm::submit(void* data, size_t size, Request** request) {
  *request = nullptr;
  if (getpid() != process_) {
    warn("a forked process cannot use the communicators of its parent: create new ones");
    return abi::kInvalidUsage;
  }
  if (const int failure = failure_.load(); failure != abi::kSuccess) return static_cast<abi::Result>(failure);
  bool first;
  {
    const std::lock_guard lock(mutex_);
    const auto free = std::find_if(requests_.begin(), requests_.end(), [](const Request& one) { return one.state.load() == Request::kFree; });
    if (free == requests_.end()) return abi::kSuccess;
    free->comm = this;
    free->data = static_cast<char*>(data);
    free->size = size;
    free->transferred = 0;
    free->state.store(Request::kPending);
    first = submitted_.empty();
    submitted_.push_back(&*free);
    *request = &*free;
  }
  if (first) loop_->post([self = shared_from_this()] { self->take_submitted(); });
  return abi::kSuccess;
}

void Comm::take_submitted() {
  std::vector<Request*> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);
  }
  for (Request* request : taken) start_request(request);
  flush_requests();
}

abi::Result Comm::test(Request* request, int* done, int* size) {
  *done = 0;
  if (request->state.load(std::memory_order_acquire) == Request::kDone) {
    *done = 1;
    if (size != nullptr) *size = static_cast<int>(request->transferred);
    request->state.store(Request::kFree);
    return abi::kSuccess;
  }
  return static_cast<abi::Result>(failure_.load());
}

void Comm::close() {
  if (getpid() != process_) return;  // the sockets are the parent's too; this copy ends with the process
  loop_->run([this] { stop(); });
  const std::shared_ptr<Comm> last = std::move(kept_);
}

void Comm::finish(Request* request, size_t transferred) {
  request->transferred = transferred;
  request->state.store(Request::kDone, std::memory_order_release);
}

void Comm::fail(abi::Result result, const std::string& reason) {
  int none = abi::kSuccess;
  if (!failure_.compare_exchange_strong(none, result)) return;
  const bool matters = std::any_of(requests_.begin(), requests_.end(), [](const Request& one) { return one.state.load() == Request::kPending; });
  (matters ? warn : info)("%s", reason.c_str());
}

}  // namespace netpath
