// The exported tables, all from the same functions. What differs between versions is only the shape of the calls.
#include <climits>
#include <cstring>
#include <exception>
#include <string>

#include "abi.h"
#include "engine.h"
#include "log.h"

namespace netpath::plugin {
namespace {

using abi::Result;

constexpr const char* kName = "Understudy";
constexpr int kManyComms = 65536;

// Run `body` with the engine. Exceptions end here: the caller is C.
template <class Body>
Result guarded(Body body) noexcept {
  try {
    const std::shared_ptr<Engine> found = engine();
    if (!found) {
      warn("this process has not initialized the plugin");
      return abi::kInvalidUsage;
    }
    return body(*found);
  } catch (const std::exception& error) {
    warn("%s", error.what());
    return abi::kSystemError;
  }
}

Result start(abi::Logger logger) noexcept {
  set_logger(logger);
  try {
    acquire_engine();
    return abi::kSuccess;
  } catch (const std::invalid_argument& error) {
    warn("%s", error.what());
    return abi::kInvalidUsage;
  } catch (const std::exception& error) {
    warn("cannot start: %s", error.what());
    return abi::kSystemError;
  }
}

// One device stands for all rails: NCCL need not know which of them work.
Result devices(int* count) {
  *count = 1;
  return abi::kSuccess;
}

template <class Properties>
Result properties(int dev, Properties* result) {
  return guarded([&](Engine& engine) {
    if (dev != 0) return abi::kInvalidArgument;
    std::memset(static_cast<void*>(result), 0, sizeof *result);
    static char name[] = "understudy";
    static std::string pci = engine.nics().front().pci;
    result->name = name;
    result->pciPath = pci.empty() ? nullptr : pci.data();
    result->ptrSupport = abi::kPtrHost;
    result->regIsGlobal = 1;
    for (const Nic& nic : engine.nics()) result->speed += nic.speed;
    result->maxComms = kManyComms;
    result->maxRecvs = 1;
    result->netDeviceType = abi::kDeviceHost;
    if constexpr (requires { result->vProps; }) {
      result->vProps.ndevs = 1;
      result->maxP2pBytes = result->maxCollBytes = wire::kMaxMessage;
    }
    if constexpr (requires { result->maxMultiRequestSize; }) result->maxMultiRequestSize = 1;
    if constexpr (requires { result->railId; }) result->railId = result->planeId = abi::kUndefinedId;
    return abi::kSuccess;
  });
}

Result listen(int dev, void* handle, void** comm) {
  return guarded([&](Engine& engine) {
    if (dev != 0) return abi::kInvalidArgument;
    wire::Handle made;
    *comm = engine.listen(&made);
    std::memcpy(handle, &made, sizeof made);
    return abi::kSuccess;
  });
}

Result connect(int dev, void* handle, void** comm, void**) {
  *comm = nullptr;
  return guarded([&](Engine& engine) {
    if (dev != 0) return abi::kInvalidArgument;
    wire::Handle copy;
    std::memcpy(&copy, handle, sizeof copy);
    if (const std::shared_ptr<Sender> sender = engine.connect(copy)) {
      sender->keep();
      *comm = static_cast<Comm*>(sender.get());
    }
    return abi::kSuccess;
  });
}

Result accept(void* listening, void** comm, void**) {
  *comm = nullptr;
  return guarded([&](Engine& engine) {
    if (const std::shared_ptr<Receiver> receiver = engine.accept(static_cast<Engine::Listening*>(listening))) {
      receiver->keep();
      *comm = static_cast<Comm*>(receiver.get());
    }
    return abi::kSuccess;
  });
}

Result reg_mr(void*, void*, size_t, int type, void** mhandle) {
  static char token;  // host memory needs no registration
  *mhandle = &token;
  if (type == abi::kPtrHost) return abi::kSuccess;
  warn("only host memory can be registered");
  return abi::kInvalidArgument;
}

Result dereg_mr(void*, void*) { return abi::kSuccess; }

Result isend(void* comm, void* data, size_t size, void** request) {
  *request = nullptr;
  if (size > wire::kMaxMessage) {
    warn("%zu bytes in one message; at most %zu are possible", size, wire::kMaxMessage);
    return abi::kInvalidArgument;
  }
  return static_cast<Comm*>(comm)->submit(data, size, reinterpret_cast<Request**>(request));
}

Result irecv(void* comm, int n, void** data, size_t size, void** request) {
  *request = nullptr;
  if (n != 1) {
    warn("%d receives in one request; 1 is possible", n);
    return abi::kInternalError;
  }
  return static_cast<Comm*>(comm)->submit(data[0], size, reinterpret_cast<Request**>(request));
}

Result iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;  // host memory is visible at once
  return abi::kSuccess;
}

Result test(void* request, int* done, int* sizes) {
  auto* const one = static_cast<Request*>(request);
  return one->comm->test(one, done, sizes);
}

Result close_send(void* comm) {
  static_cast<Comm*>(comm)->close();
  return abi::kSuccess;
}

Result close_recv(void* comm) {
  const auto receiver = std::static_pointer_cast<Receiver>(static_cast<Comm*>(comm)->shared_from_this());
  receiver->close();
  if (const std::shared_ptr<Engine> found = engine()) found->closed(*receiver);
  return abi::kSuccess;
}

Result close_listen(void* listening) {
  return guarded([&](Engine& engine) {
    engine.close_listen(static_cast<Engine::Listening*>(listening));
    return abi::kSuccess;
  });
}

// The shapes of the calls that changed from version to version.

Result init_v8(abi::Logger logger) { return start(logger); }
Result init_v10(abi::Logger logger, void*) { return start(logger); }
Result init_v11(void** context, uint64_t, void*, abi::Logger logger, void*) {
  static char token;
  *context = &token;
  return start(logger);
}
Result finalize(void*) {
  release_engine();
  return abi::kSuccess;
}
Result set_attributes(void*, void*) { return abi::kSuccess; }
Result connect_v10(int dev, void*, void* handle, void** comm, void** device) { return connect(dev, handle, comm, device); }
Result listen_v11(void*, int dev, void* handle, void** comm) { return listen(dev, handle, comm); }
Result connect_v11(void*, int dev, void* handle, void** comm, void** device) { return connect(dev, handle, comm, device); }

Result isend_v8(void* comm, void* data, int size, int, void*, void** request) {
  return size < 0 ? abi::kInvalidArgument : isend(comm, data, static_cast<size_t>(size), request);
}
Result irecv_v8(void* comm, int n, void** data, int* sizes, int*, void**, void** request) {
  return sizes[0] < 0 ? abi::kInvalidArgument : irecv(comm, n, data, static_cast<size_t>(sizes[0]), request);
}
Result isend_v9(void* comm, void* data, size_t size, int, void*, void** request) { return isend(comm, data, size, request); }
Result irecv_v9(void* comm, int n, void** data, size_t* sizes, int*, void**, void** request) { return irecv(comm, n, data, sizes[0], request); }
Result isend_v10(void* comm, void* data, size_t size, int, void*, void*, void** request) { return isend(comm, data, size, request); }
Result irecv_v10(void* comm, int n, void** data, size_t* sizes, int*, void**, void**, void** request) {
  return irecv(comm, n, data, sizes[0], request);
}

template <class Net>
constexpr Net table() {
  Net net{};  // DMA-BUF, device memory and virtual devices are not offered: null
  net.name = kName;
  net.devices = devices;
  net.getProperties = properties;
  net.accept = accept;
  net.regMr = reg_mr;
  net.deregMr = dereg_mr;
  net.iflush = iflush;
  net.test = test;
  net.closeSend = close_send;
  net.closeRecv = close_recv;
  net.closeListen = close_listen;
  if constexpr (requires { net.finalize; }) {
    net.init = init_v11;
    net.listen = listen_v11;
    net.connect = connect_v11;
    net.finalize = finalize;
    net.setNetAttr = set_attributes;
  } else {
    net.listen = listen;
  }
  return net;
}

constexpr abi::NetV8 make_v8() {
  auto net = table<abi::NetV8>();
  net.init = init_v8;
  net.connect = connect;
  net.isend = isend_v8;
  net.irecv = irecv_v8;
  return net;
}

constexpr abi::NetV9 make_v9() {
  auto net = table<abi::NetV9>();
  net.init = init_v8;
  net.connect = connect;
  net.isend = isend_v9;
  net.irecv = irecv_v9;
  return net;
}

constexpr abi::NetV10 make_v10() {
  auto net = table<abi::NetV10>();
  net.init = init_v10;
  net.connect = connect_v10;
  net.isend = isend_v10;
  net.irecv = irecv_v10;
  return net;
}

template <class Net>
constexpr Net make_v11() {
  auto net = table<Net>();
  net.isend = isend_v10;
  net.irecv = irecv_v10;
  return net;
}

}  // namespace

#define UNDERSTUDY_EXPORT extern "C" __attribute__((visibility("default")))

UNDERSTUDY_EXPORT const abi::NetV8 ncclNetPlugin_v8;
UNDERSTUDY_EXPORT const abi::NetV9 ncclNetPlugin_v9;
UNDERSTUDY_EXPORT const abi::NetV10 ncclNetPlugin_v10;
UNDERSTUDY_EXPORT const abi::NetV11 ncclNetPlugin_v11;
UNDERSTUDY_EXPORT const abi::NetV12 ncclNetPlugin_v12;

const abi::NetV8 ncclNetPlugin_v8 = make_v8();
const abi::NetV9 ncclNetPlugin_v9 = make_v9();
const abi::NetV10 ncclNetPlugin_v10 = make_v10();
const abi::NetV11 ncclNetPlugin_v11 = make_v11<abi::NetV11>();
const abi::NetV12 ncclNetPlugin_v12 = make_v11<abi::NetV12>();

}  // namespace netpath::plugin
