#include "engine.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "log.h"
#include "seal.h"

namespace netpath {
namespace {

constexpr std::chrono::seconds kStatsEvery{1};

void random_bytes(void* to, size_t size) {
  if (getrandom(to, size, 0) != static_cast<ssize_t>(size)) throw std::system_error(errno, std::generic_category(), "getrandom");
}

bool same_secret(const wire::Secret& a, const wire::Secret& b) {  // in constant time
  uint8_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == 0;
}

std::vector<Nic> usable_nics(const Config& config) {
  std::vector<Nic> nics = find_nics(config.interfaces);
  if (nics.empty()) {
    throw std::invalid_argument(config.interfaces.empty() ? std::string("no network interface is up and has an address")
                                                          : "no usable network interface matches UNDERSTUDY_NET_IFNAME=" + config.interfaces);
  }
  return nics;
}

}  // namespace

Engine::Engine(const Config& config) : config_(config), nics_(usable_nics(config)), stats_(std::make_shared<Stats>(config.stats_folder)), links_(std::make_shared<Links>()) {
  for (int i = 0; i < config_.threads; ++i) loops_.push_back(std::make_shared<Loop>());
  Loop& loop = *loops_.front();
  listener_ = std::make_unique<Listener>(loop, nics_.front().address.family, stats_,
                                         [this](Fd fd, const wire::Hello& hello) { return admit(std::move(fd), hello); });
  link_watch_ = std::make_unique<LinkWatch>(loop, links_, nics_, [this](const std::string& interface, bool up) { link_changed(interface, up); });
  std::exception_ptr failure;
  loop.run([&] {
    try {
      listener_->start();
      link_watch_->start();
      loop.add_ticker([this](Time) { tick(); });
    } catch (...) {
      failure = std::current_exception();
    }
  });
  if (failure) {
    for (const auto& one : loops_) one->stop();  // they may be calling what is about to be freed
    std::rethrow_exception(failure);
  }
  for (const Nic& nic : nics_) info("rail %s %s, %d Mbit/s", nic.name.c_str(), nic.address.text().c_str(), nic.speed);
}

Engine::~Engine() {
  Loop& loop = *loops_.front();
  loop.run([&] {
    link_watch_->end();
    listener_->end();
  });
  for (const auto& one : loops_) one->stop();
  stats_->write();
}

void Engine::tick() {
  const Time now = Clock::now();  // also of other threads
  if (now - stats_written_ < kStatsEvery) return;
  stats_written_ = now;
  stats_->write();
  const std::lock_guard lock(mutex_);
  std::erase_if(senders_, [](const auto& sender) { return sender.expired(); });
  std::erase_if(accepted_, [&](const auto& entry) {
    return entry.second.closed_at != Time{} && now - entry.second.closed_at > config_.give_up;
  });
}

void Engine::link_changed(const std::string& interface, bool up) {
  info("link %s is %s", interface.c_str(), up ? "up" : "down");
  const std::lock_guard lock(mutex_);
  for (const auto& one : senders_) {
    if (const std::shared_ptr<Sender> sender = one.lock()) sender->post_link(interface, up);
  }
}

Engine::Listening* Engine::listen(wire::Handle* handle) {
  std::memset(handle, 0, sizeof *handle);
  handle->magic = wire::kMagic;
  handle->port = listener_->port();
  handle->family = nics_.front().address.family == AF_INET ? 4 : 6;
  handle->rails = static_cast<uint8_t>(nics_.size());
  random_bytes(&handle->listener, sizeof handle->listener);
  random_bytes(handle->secret.data(), handle->secret.size());
  random_bytes(&handle->answer, sizeof handle->answer);
  uint8_t* to = handle->addresses;
  for (const Nic& nic : nics_) to = std::copy_n(nic.address.bytes.s6_addr, Address::size(nic.address.family), to);
  const std::lock_guard lock(mutex_);
  listeners_[handle->listener] = {handle->secret, handle->answer, {}};
  return new Listening{handle->listener, getpid()};
}

void Engine::close_listen(Listening* listening) {
  std::deque<std::shared_ptr<Receiver>> unwanted;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = listeners_.find(listening->id); found != listeners_.end()) {
      unwanted.swap(found->second.arrived);
      listeners_.erase(found);
    }
  }
  for (const auto& receiver : unwanted) {
    receiver->close();
    closed(*receiver);
  }
  delete listening;
}

std::shared_ptr<Receiver> Engine::accept(const Listening* listening) {
  const std::lock_guard lock(mutex_);
  std::deque<std::shared_ptr<Receiver>>& arrived = listeners_.at(listening->id).arrived;
  if (arrived.empty()) return nullptr;
  std::shared_ptr<Receiver> receiver = std::move(arrived.front());
  arrived.pop_front();
  return receiver;
}

void Engine::closed(const Receiver& receiver) {
  {
    const std::lock_guard lock(mutex_);
    // Its sender may not have got the last acknowledgements: when it comes back, it learns that all has arrived.
    for (auto& [id, entry] : accepted_) {
      if (entry.receiver.lock().get() != &receiver) continue;
      entry.received = receiver.messages_received();
      entry.closed_at = Clock::now();
    }
  }
  stats_->write();
}

// On the first loop.
bool Engine::admit(Fd fd, const wire::Hello& hello) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size);
  const Address local = Address::of(reinterpret_cast<sockaddr*>(&name));
  size = sizeof name;
  getpeername(fd.get(), reinterpret_cast<sockaddr*>(&name), &size);
  const Address remote = Address::of(reinterpret_cast<sockaddr*>(&name));
  const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& one) { return one.address == local; });
  if (nic == nics_.end() || hello.rail >= wire::kMaxRails || hello.stream >= wire::kMaxStreams) return false;

  const std::lock_guard lock(mutex_);
  auto found = accepted_.find(hello.communicator);
  if (found != accepted_.end()) {
    if (!same_secret(found->second.secret, hello.secret)) return false;
  } else {
    const auto waiting = listeners_.find(hello.listener);
    if (waiting == listeners_.end() || !same_secret(waiting->second.secret, hello.secret)) return false;
    const std::shared_ptr<Loop> loop = next_loop();
    auto receiver = std::make_shared<Receiver>(loop, stats_, config_);
    found = accepted_.insert({hello.communicator, {receiver, loop, hello.secret, waiting->second.answer}}).first;
    waiting->second.arrived.push_back(std::move(receiver));
  }
  const Accepted& entry = found->second;
  const std::shared_ptr<Receiver> receiver = entry.receiver.lock();
  if (!receiver || entry.closed_at != Time{}) {
    const wire::Reply bye = reply_of(wire::Type::kBye, entry.received, 0, wants_checksums(hello));
    send(fd.get(), &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
  }
  // A task has to be copyable, and a descriptor is not.
  auto moved = std::make_shared<Fd>(std::move(fd));
  entry.loop->post([receiver, moved, hello, answer = entry.answer, interface = nic->name, local, remote] {
    receiver->adopt(std::move(*moved), hello, answer, interface, local, remote);
  });
  return true;
}

std::shared_ptr<Sender> Engine::connect(const wire::Handle& handle) {
  if (handle.magic != wire::kMagic) throw std::runtime_error("the handle is of another plugin, or of another version: install the same on all hosts");
  const size_t most = sizeof handle.addresses / (handle.family == 4 ? 4 : 16);
  if ((handle.family != 4 && handle.family != 6) || handle.rails == 0 || handle.rails > most) throw std::runtime_error("the handle is damaged");
  std::unique_lock lock(mutex_);
  std::shared_ptr<Sender>& sender = connecting_[handle.secret];
  if (!sender) {
    auto made = std::make_shared<Sender>(next_loop(), stats_, links_, nics_, handle, config_);
    if (!made->has_rails()) {
      connecting_.erase(handle.secret);
      throw std::runtime_error("no interface of this host has the address family of the receiver: see UNDERSTUDY_NET_IFNAME on both hosts");
    }
    sender = made;
    senders_.push_back(made);
    made->post_begin();
    return nullptr;
  }
  if (sender->failed()) {
    const std::shared_ptr<Sender> failed = std::move(sender);
    connecting_.erase(handle.secret);
    lock.unlock();
    failed->close();  // its loop may still be using it
    throw std::runtime_error("no connection to the receiver");
  }
  if (!sender->connected()) return nullptr;
  std::shared_ptr<Sender> ready = std::move(sender);
  connecting_.erase(handle.secret);
  return ready;
}

namespace {

std::mutex the_mutex;
std::shared_ptr<Engine>& the_engine() {
  static auto* engine = new std::shared_ptr<Engine>;  // never destroyed: threads may outlive static objects
  return *engine;
}
int users = 0;

// A forked process has no threads: what the parent had is left alone, and not freed.
void in_forked_process() {
  close_all_in_forked_process();
  new (&the_mutex) std::mutex;
  new (&the_engine()) std::shared_ptr<Engine>;
  users = 0;
}

}  // namespace

std::shared_ptr<Engine> engine() {
  const std::lock_guard lock(the_mutex);
  return the_engine();
}

void acquire_engine() {
  static const int registered = pthread_atfork(nullptr, nullptr, in_forked_process);
  if (registered != 0) throw std::system_error(registered, std::generic_category(), "pthread_atfork");
  const std::lock_guard lock(the_mutex);
  if (!the_engine()) the_engine() = std::make_shared<Engine>(Config::from_environment());
  ++users;
}

void release_engine() {
  std::shared_ptr<Engine> last;
  const std::lock_guard lock(the_mutex);
  if (users > 0 && --users == 0) last = std::move(the_engine());
}

}  // namespace netpath
