// One way to call any version of the tables, as a loader of NCCL does: open the library, find the table, call through it.
#pragma once

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "abi.h"

namespace driver {

namespace abi = netpath::abi;

inline void log_to_stderr(abi::LogLevel level, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs(level == abi::kLogWarn ? "WARN " : "INFO ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
}

[[noreturn]] inline void stop(int code, const std::string& why) {
  std::fprintf(stderr, "driver: %s\n", why.c_str());
  std::fflush(nullptr);
  std::_Exit(code);
}

struct Properties {
  std::string name;
  int speed, ptr_support, max_recvs;
};

struct Api {
  std::string name;
  std::function<int()> init, finalize;
  std::function<int(int*)> devices;
  std::function<int(Properties*)> properties;
  std::function<int(void*, void**)> listen, connect;
  std::function<int(void*, void**)> accept;
  std::function<int(void*, void*, size_t, void**)> isend, irecv;
  std::function<int(void*, int*, int*)> test;
  std::function<int(void*)> close_send, close_recv, close_listen;
};

template <class Net, class Table>
Api common(const Net* net) {
  Api api;
  api.name = net->name;
  api.devices = net->devices;
  api.properties = [net](Properties* to) {
    Table got;
    const int result = net->getProperties(0, &got);
    if (result == 0) *to = {got.name, got.speed, got.ptrSupport, got.maxRecvs};
    return result;
  };
  api.accept = [net](void* listening, void** comm) {
    void* device = nullptr;
    return net->accept(listening, comm, &device);
  };
  api.test = net->test;
  api.close_send = net->closeSend;
  api.close_recv = net->closeRecv;
  api.close_listen = net->closeListen;
  api.finalize = [] { return 0; };
  return api;
}

// The size as the version has it, and with or without the profiler's handle.
template <class Net, class Size, bool kProfiler>
void transfers(Api& api, const Net* net) {
  api.isend = [net](void* comm, void* data, size_t size, void** request) {
    void* handle = nullptr;
    net->regMr(comm, data, size, abi::kPtrHost, &handle);
    if constexpr (kProfiler) {
      return net->isend(comm, data, size, 0, handle, nullptr, request);
    } else {
      return net->isend(comm, data, static_cast<Size>(size), 0, handle, request);
    }
  };
  api.irecv = [net](void* comm, void* data, size_t size, void** request) {
    void* handle = nullptr;
    net->regMr(comm, data, size, abi::kPtrHost, &handle);
    Size sizes = static_cast<Size>(size);
    int tag = 0;
    if constexpr (kProfiler) {
      return net->irecv(comm, 1, &data, &sizes, &tag, &handle, nullptr, request);
    } else {
      return net->irecv(comm, 1, &data, &sizes, &tag, &handle, request);
    }
  };
}

template <class Net, class Table>
Api with_context(const Net* net) {
  Api api = common<Net, Table>(net);
  transfers<Net, size_t, true>(api, net);
  static void* context;
  api.init = [net] { return net->init(&context, 7, nullptr, log_to_stderr, nullptr); };
  api.finalize = [net] { return net->finalize(context); };
  api.listen = [net](void* handle, void** comm) { return net->listen(context, 0, handle, comm); };
  api.connect = [net](void* handle, void** comm) {
    void* device = nullptr;
    return net->connect(context, 0, handle, comm, &device);
  };
  return api;
}

template <class Net>
void without_context(Api& api, const Net* net) {
  api.listen = [net](void* handle, void** comm) { return net->listen(0, handle, comm); };
}

inline Api open_table(void* library, int version) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
  const void* const table = dlsym(library, symbol.c_str());
  if (table == nullptr) stop(4, "no symbol " + symbol);
  if (version == 12) return with_context<abi::NetV12, abi::PropertiesV12>(static_cast<const abi::NetV12*>(table));
  if (version == 11) return with_context<abi::NetV11, abi::PropertiesV11>(static_cast<const abi::NetV11*>(table));
  if (version == 10) {
    const auto* net = static_cast<const abi::NetV10*>(table);
    Api api = common<abi::NetV10, abi::PropertiesV9>(net);
    transfers<abi::NetV10, size_t, true>(api, net);
    without_context(api, net);
    api.init = [net] { return net->init(log_to_stderr, nullptr); };
    api.connect = [net](void* handle, void** comm) { return net->connect(0, nullptr, handle, comm, nullptr); };
    return api;
  }
  const auto finish = [](auto api, const auto* net) {
    without_context(api, net);
    api.init = [net] { return net->init(log_to_stderr); };
    api.connect = [net](void* handle, void** comm) { return net->connect(0, handle, comm, nullptr); };
    return api;
  };
  if (version == 9) {
    const auto* net = static_cast<const abi::NetV9*>(table);
    Api api = common<abi::NetV9, abi::PropertiesV9>(net);
    transfers<abi::NetV9, size_t, false>(api, net);
    return finish(api, net);
  }
  const auto* net = static_cast<const abi::NetV8*>(table);
  Api api = common<abi::NetV8, abi::PropertiesV8>(net);
  transfers<abi::NetV8, int, false>(api, net);
  return finish(api, net);
}

inline void* open_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) stop(4, dlerror());
  return library;
}

inline void must(int result, const char* call) {
  if (result != 0) stop(4, std::string(call) + " returned " + std::to_string(result));
}

}  // namespace driver
