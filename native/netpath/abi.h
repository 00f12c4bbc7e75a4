// The tables through which NCCL and RCCL call a network plugin: ncclNet v8 to v12, as binary layout.
//
// Written from the documented layout (docs.nvidia.com, "Network plugin"). The static_asserts hold what a loader relies on: the
// sizes. Fields that this plugin neither reads nor sets are `void*` of the same size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace netpath::abi {

enum Result : int { kSuccess = 0, kSystemError = 2, kInternalError = 3, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };
enum LogLevel : int { kLogWarn = 2, kLogInfo = 3 };

constexpr unsigned long kLogNet = 0x10;
constexpr int kPtrHost = 1;
constexpr int kDeviceHost = 0;       // no offload to a device
constexpr size_t kHandleBytes = 128;  // what NCCL carries from listen to connect
constexpr int kMaxRequests = 32;      // requests of one communicator in flight
constexpr int16_t kUndefinedId = -1;

using Logger = void (*)(LogLevel level, unsigned long flags, const char* file, int line, const char* format, ...);

template <int kDevices>
struct VirtualDevice {
  int ndevs;
  int devs[kDevices];
};

struct PropertiesV8 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;  // Mbit/s
  int port;
  float latency;  // microseconds
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};

struct PropertiesV9 {  // also v10
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VirtualDevice<4> vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
};

struct PropertiesV11 : PropertiesV9 {
  int maxMultiRequestSize;
};

struct PropertiesV12 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VirtualDevice<8> vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
};

static_assert(sizeof(PropertiesV8) == 64);
static_assert(sizeof(PropertiesV9) == 104);
static_assert(sizeof(PropertiesV11) == 112);
static_assert(offsetof(PropertiesV12, maxP2pBytes) == 104);
static_assert(sizeof(PropertiesV12) == 128);

// Functions that are the same in all versions. The order of the fields is the order of the tables.
using Devices = Result (*)(int* count);
using Listen = Result (*)(int dev, void* handle, void** listenComm);
using Accept = Result (*)(void* listenComm, void** recvComm, void** recvDevComm);
using RegMr = Result (*)(void* comm, void* data, size_t size, int type, void** mhandle);
using RegMrDmaBuf = Result (*)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
using DeregMr = Result (*)(void* comm, void* mhandle);
using Iflush = Result (*)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
using Test = Result (*)(void* request, int* done, int* sizes);
using Close = Result (*)(void* comm);
using GetDeviceMr = Result (*)(void* comm, void* mhandle, void** dptr);
using IrecvConsumed = Result (*)(void* recvComm, int n, void* request);

struct NetV8 {
  const char* name;
  Result (*init)(Logger);
  Devices devices;
  Result (*getProperties)(int dev, PropertiesV8*);
  Listen listen;
  Result (*connect)(int dev, void* handle, void** sendComm, void** sendDevComm);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Result (*isend)(void* sendComm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recvComm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  Iflush iflush;
  Test test;
  Close closeSend, closeRecv, closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
};

struct NetV9 {
  const char* name;
  Result (*init)(Logger);
  Devices devices;
  Result (*getProperties)(int dev, PropertiesV9*);
  Listen listen;
  Result (*connect)(int dev, void* handle, void** sendComm, void** sendDevComm);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Result (*isend)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request);
  Iflush iflush;
  Test test;
  Close closeSend, closeRecv, closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  void* makeVDevice;
};

// From v10 on, isend and irecv have one more argument, a handle of the profiler.
using Isend = Result (*)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void* phandle, void** request);
using Irecv = Result (*)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles, void** request);

struct NetV10 {
  const char* name;
  Result (*init)(Logger, void* profiler);
  Devices devices;
  Result (*getProperties)(int dev, PropertiesV9*);
  Listen listen;
  Result (*connect)(int dev, void* config, void* handle, void** sendComm, void** sendDevComm);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Isend isend;
  Irecv irecv;
  Iflush iflush;
  Test test;
  Close closeSend, closeRecv, closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  void* makeVDevice;
};

template <class Properties>
struct NetWithContext {  // v11 and v12 differ only in the properties
  const char* name;
  Result (*init)(void** context, uint64_t commId, void* config, Logger, void* profiler);
  Devices devices;
  Result (*getProperties)(int dev, Properties*);
  Result (*listen)(void* context, int dev, void* handle, void** listenComm);
  Result (*connect)(void* context, int dev, void* handle, void** sendComm, void** sendDevComm);
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Isend isend;
  Irecv irecv;
  Iflush iflush;
  Test test;
  Close closeSend, closeRecv, closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  void* makeVDevice;
  Result (*finalize)(void* context);
  Result (*setNetAttr)(void* context, void* attributes);
};

using NetV11 = NetWithContext<PropertiesV11>;
using NetV12 = NetWithContext<PropertiesV12>;

static_assert(sizeof(NetV8) == 152);
static_assert(sizeof(NetV9) == 160);
static_assert(sizeof(NetV10) == 160);
static_assert(sizeof(NetV11) == 176);
static_assert(sizeof(NetV12) == 176);

}  // namespace netpath::abi
