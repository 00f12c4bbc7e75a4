// Lives of communicators within one process: from a table to its end, over forks, closed early, and by several threads.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "api.h"
#include "content.h"

namespace driver {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

inline void rest() { usleep(50); }

// A connection within this process, and messages of some sizes over it.
inline void exchange(const Api& api, const std::vector<size_t>& sizes) {
  uint8_t handle[abi::kHandleBytes];
  void *listening = nullptr, *to = nullptr, *from = nullptr;
  must(api.listen(handle, &listening), "listen");
  const auto began = Clock::now();
  while (to == nullptr || from == nullptr) {
    if (to == nullptr) must(api.connect(handle, &to), "connect");
    if (from == nullptr) must(api.accept(listening, &from), "accept");
    if (seconds_since(began) > 60) stop(5, "no connection within the limit");
    rest();
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<uint8_t> data(sizes[i] + 8), got(sizes[i] + kBeyond, kMark);
    fill(data.data(), sizes[i], i);
    void *sending = nullptr, *receiving = nullptr;
    must(api.isend(to, data.data(), sizes[i], &sending), "isend");
    must(api.irecv(from, got.data(), got.size(), &receiving), "irecv");
    int sent = 0, received = 0, size = -1;
    while (sent == 0 || received == 0) {
      if (sent == 0) must(api.test(sending, &sent, nullptr), "test");
      if (received == 0) must(api.test(receiving, &received, &size), "test");
      if (seconds_since(began) > 120) stop(5, "no message within the limit");
      rest();
    }
    if (static_cast<size_t>(size) != sizes[i] || !matches(got.data(), sizes[i], i)) stop(3, "wrong bytes");
    if (!all_are(got.data() + size, kBeyond, kMark)) stop(3, "bytes beyond a message were written");
  }
  must(api.close_send(to), "closeSend");
  must(api.close_recv(from), "closeRecv");
  must(api.close_listen(listening), "closeListen");
}

inline void tables(const char* path) {
  for (int version = 8; version <= 12; ++version) {
    void* const library = open_library(path);
    const Api api = open_table(library, version);
    must(api.init(), "init");
    int count = 0;
    must(api.devices(&count), "devices");
    Properties properties;
    must(api.properties(&properties), "getProperties");
    if (count != 1 || properties.max_recvs != 1 || properties.ptr_support != abi::kPtrHost || properties.speed <= 0) stop(3, "strange properties");
    exchange(api, {0, 1, 2, 100000, 3000000});
    must(api.finalize(), "finalize");
    dlclose(library);
    std::printf("v%d %s %s %d Mbit/s\n", version, api.name.c_str(), properties.name.c_str(), properties.speed);
  }
}

inline void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) stop(4, "a forked process ended with status " + std::to_string(status));
}

inline void forks(const Api& api) {
  exchange(api, {100000});
  in_child([&] {
    int count = 0;
    if (api.listen(&count, nullptr) == 0) stop(3, "a forked process uses its parent's threads");
    must(api.init(), "init");
    exchange(api, {0, 100000});
    must(api.finalize(), "finalize");
  });
  exchange(api, {100000});
}

// Requests that can never be done: the communicators are closed with them under way, in both orders.
inline void midway(const Api& api) {
  for (int round = 0; round < 8; ++round) {
    uint8_t handle[abi::kHandleBytes];
    void *listening = nullptr, *to = nullptr, *from = nullptr;
    must(api.listen(handle, &listening), "listen");
    while (to == nullptr || from == nullptr) {
      if (to == nullptr) must(api.connect(handle, &to), "connect");
      if (from == nullptr) must(api.accept(listening, &from), "accept");
      rest();
    }
    {
      std::vector<uint8_t> data(4000000), got(4000000);
      std::vector<void*> requests(kWindow);
      for (void*& request : requests) must(api.isend(to, data.data(), data.size(), &request), "isend");
      void* receiving = nullptr;
      for (int i = 0; i < round % 4; ++i) must(api.irecv(from, got.data(), got.size(), &receiving), "irecv");
      if (round % 2 == 0) {
        must(api.close_send(to), "closeSend");
        must(api.close_recv(from), "closeRecv");
      } else {
        must(api.close_recv(from), "closeRecv");
        const auto began = Clock::now();
        int done = 0;
        while (api.test(requests.back(), &done, nullptr) == 0) {
          if (done != 0) stop(3, "a send is done that was not received");
          if (seconds_since(began) > 60) stop(5, "a send to a closed receiver does not fail");
          rest();
        }
        must(api.close_send(to), "closeSend");
      }
    }  // the buffers are freed: nothing may use them any more
    must(api.close_listen(listening), "closeListen");
  }
  exchange(api, {100000});
}

// Threads open and close communicators of the same loops.
inline void churn(const Api& api) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 25; ++round) exchange(api, {1000});
    });
  }
  for (std::thread& one : threads) one.join();
}

}  // namespace driver
