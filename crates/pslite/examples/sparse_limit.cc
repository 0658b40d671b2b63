// Rates of sparse_benchmark.cc without a parameter server: the least that its requests cost on a machine.
//
//   sparse_limit WORKERS [KEYS [KEYS_A_REQUEST [SECONDS [REQUESTS_UNDER_WAY [HASHED]]]]]
//
// One process has all rows, as 16 bytes each in an open hash table that fits them from the start, and asks for the memory of
// rows ahead. Workers send keys and values from where they lie, over TCP on loopback; all that has come by one read is
// answered by one write. There is no reliability, no update rule, no copy of a request, and no other thread.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "sparse_requests.h"

namespace {

using sparse::Key;
using sparse::Settings;
using Clock = std::chrono::steady_clock;

enum Operation : uint32_t { kPush, kPull };

// Before the keys of a request, and the values of a push; and before the values that answer a pull.
struct Head {
  uint32_t operation, count;
};

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  _exit(1);
}

// Rows by key. A key of 0 marks a free place, so keys are kept plus one.
class Table {
 public:
  explicit Table(size_t rows) {
    while (size_ < rows * 2) size_ *= 2;
    void* memory = mmap(nullptr, size_ * sizeof(Row), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Fail("memory for the rows");
    madvise(memory, size_ * sizeof(Row), MADV_HUGEPAGE);
    rows_ = static_cast<Row*>(memory);
  }

  // Calls `use(position, value)` for each key, with requests for memory so many keys ahead.
  template <typename Use>
  void ForEach(const Key* keys, size_t count, const Use& use) {
    constexpr size_t kAhead = 24;
    for (size_t at = 0; at < std::min(count, kAhead); ++at) __builtin_prefetch(&rows_[Home(keys[at])], 1);
    for (size_t at = 0; at < count; ++at) {
      if (at + kAhead < count) __builtin_prefetch(&rows_[Home(keys[at + kAhead])], 1);
      size_t place = Home(keys[at]);
      while (rows_[place].key != keys[at] + 1) {
        if (rows_[place].key == 0) {
          rows_[place].key = keys[at] + 1;
          break;
        }
        place = (place + 1) & (size_ - 1);
      }
      use(at, &rows_[place].value);
    }
  }

 private:
  struct Row {
    Key key;
    float value;
  };

  // Keys that follow each other lie beside each other; hashed ones are spread already.
  size_t Home(Key key) const { return key & (size_ - 1); }

  size_t size_ = 1;
  Row* rows_;
};

// The stream of a worker, at the end with the rows.
class Stream {
 public:
  Stream(int socket, size_t request_bytes) : socket_(socket), input_(16 * request_bytes) {}

  // Reads what is there, and answers it. Returns false at the end.
  bool Serve(Table* table) {
    const ssize_t got = recv(socket_, input_.data() + filled_, input_.size() - filled_, MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EAGAIN) return true;
      Fail("a read of the server");
    }
    filled_ += static_cast<size_t>(got);
    size_t begin = 0;
    while (filled_ - begin >= sizeof(Head)) {
      Head head;
      std::memcpy(&head, &input_[begin], sizeof head);
      // Padded, so that keys can be read in place.
      const size_t values_bytes = head.operation == kPush ? (head.count * sizeof(float) + 7) & ~size_t{7} : 0;
      const size_t bytes = head.count * sizeof(Key) + values_bytes;
      if (filled_ - begin < sizeof head + bytes) break;
      const Key* keys = reinterpret_cast<const Key*>(&input_[begin + sizeof head]);
      const float* values = reinterpret_cast<const float*>(keys + head.count);
      const size_t answer = output_.size();
      if (head.operation == kPush) {
        table->ForEach(keys, head.count, [&](size_t at, float* value) { *value += values[at]; });
        output_.resize(answer + sizeof head);
      } else {
        output_.resize(answer + sizeof head + head.count * sizeof(float));
        float* pulled = reinterpret_cast<float*>(&output_[answer + sizeof head]);
        table->ForEach(keys, head.count, [&](size_t at, const float* value) { pulled[at] = *value; });
      }
      std::memcpy(&output_[answer], &head, sizeof head);
      begin += sizeof head + bytes;
    }
    if (begin == filled_) {
      filled_ = 0;
    } else if (begin > 0) {
      std::memmove(input_.data(), &input_[begin], filled_ - begin);
      filled_ -= begin;
    }
    Flush();
    return true;
  }

  void Flush() {
    while (sent_ < output_.size()) {
      const ssize_t sent = send(socket_, &output_[sent_], output_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EAGAIN) return;
        Fail("a write of the server");
      }
      sent_ += static_cast<size_t>(sent);
    }
    sent_ = 0;
    output_.clear();
  }

  // Lets the worker begin.
  void Begin() const {
    if (send(socket_, "", 1, MSG_NOSIGNAL) != 1) Fail("a write of the server");
  }

  pollfd Wanted() const { return {socket_, static_cast<short>(POLLIN | (output_.empty() ? 0 : POLLOUT)), 0}; }

 private:
  int socket_;
  std::vector<char> input_;
  size_t filled_ = 0;
  std::vector<char> output_;
  size_t sent_ = 0;
};

void RunServer(const Settings& settings, int listener, size_t workers) {
  Table table(settings.keys);
  for (size_t row = 0; row < settings.keys; ++row) {
    const Key key = sparse::KeyOf(settings, row);
    table.ForEach(&key, 1, [](size_t, float* value) { *value = 0.5f; });
  }
  std::vector<Stream> streams;
  for (size_t worker = 0; worker < workers; ++worker) {
    const int socket = accept(listener, nullptr, nullptr);
    if (socket < 0) Fail("accept");
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    streams.emplace_back(socket, sizeof(Head) + settings.keys_a_request * 12 + 8);
  }
  // Workers begin when all of them have drawn their requests.
  for (const Stream& stream : streams) stream.Begin();
  for (size_t open = workers; open > 0;) {
    std::vector<pollfd> wanted;
    for (const Stream& stream : streams) wanted.push_back(stream.Wanted());
    if (poll(wanted.data(), wanted.size(), -1) < 0) Fail("poll");
    for (size_t at = 0; at < streams.size(); ++at) {
      if (wanted[at].revents & POLLOUT) streams[at].Flush();
      if ((wanted[at].revents & (POLLIN | POLLHUP)) && !streams[at].Serve(&table)) {
        streams.erase(streams.begin() + static_cast<ptrdiff_t>(at));
        --open;
        break;
      }
    }
  }
}

class Worker {
 public:
  Worker(const Settings& settings, in_addr_t address, in_port_t port, unsigned number)
      : settings_(settings),
        requests_(sparse::Draw(settings, 200, number + 1)),
        ones_(settings.keys_a_request + 1, 1.0f),
        pulled_(settings.keys_a_request) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in to = {AF_INET, port, {address}, {}};
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0) Fail("connect");
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  // Waits until the others have drawn their requests too.
  void WaitForAll() {
    char byte;
    if (recv(socket_, &byte, 1, MSG_WAITALL) != 1) Fail("a read of a worker");
  }

  // Makes requests for a while. Returns millions of pairs a second.
  double Measure(Operation operation) {
    const Clock::time_point begin = Clock::now();
    size_t sent = 0, answered = 0;
    double elapsed = 0;
    while (elapsed < settings_.seconds) {
      Send(operation, requests_[sent++ % requests_.size()]);
      while (sent - answered >= settings_.under_way) {
        Receive(operation);
        ++answered;
      }
      elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    for (; answered < sent; ++answered) Receive(operation);
    elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    return static_cast<double>(sent * settings_.keys_a_request) / elapsed / 1e6;
  }

 private:
  void Send(Operation operation, const std::vector<Key>& keys) {
    Head head = {operation, static_cast<uint32_t>(keys.size())};
    const size_t values = operation == kPush ? keys.size() * sizeof(float) : 0;
    const size_t padding = values % 8;
    iovec parts[] = {{&head, sizeof head},
                     {const_cast<Key*>(keys.data()), keys.size() * sizeof(Key)},
                     {ones_.data(), values + padding}};
    size_t left = sizeof head + keys.size() * sizeof(Key) + values + padding;
    for (iovec* part = parts; left > 0;) {
      const ssize_t written = writev(socket_, part, static_cast<int>(parts + 3 - part));
      if (written < 0) Fail("a write of a worker");
      left -= static_cast<size_t>(written);
      size_t gone = static_cast<size_t>(written);
      while (part < parts + 3 && gone >= part->iov_len) gone -= part++->iov_len;
      if (part < parts + 3) {
        part->iov_base = static_cast<char*>(part->iov_base) + gone;
        part->iov_len -= gone;
      }
    }
  }

  void Receive(Operation operation) {
    Head head;
    iovec parts[] = {{&head, sizeof head},
                     {pulled_.data(), operation == kPull ? pulled_.size() * sizeof(float) : 0}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const size_t wanted = parts[0].iov_len + parts[1].iov_len;
    if (recvmsg(socket_, &message, MSG_WAITALL) != static_cast<ssize_t>(wanted)) Fail("a read of a worker");
  }

  Settings settings_;
  std::vector<std::vector<Key>> requests_;
  std::vector<float> ones_, pulled_;
  int socket_;
};

}  // namespace

int main(int argc, char** argv) {
  const size_t workers = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 1;
  const Settings settings = Settings::From(argc - 1, argv + 1);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) < 0 || listen(listener, 64) < 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) < 0) {
    Fail("a port for the server");
  }
  std::vector<pid_t> processes;
  for (unsigned number = 0; number < workers; ++number) {
    processes.push_back(fork());
    if (processes.back() != 0) continue;
    Worker worker(settings, address.sin_addr.s_addr, address.sin_port, number);
    worker.WaitForAll();
    for (int repeat = 0; repeat < 2; ++repeat) {
      const double pushes = worker.Measure(kPush);
      const double pulls = worker.Measure(kPull);
      std::printf("worker %u: push %.1f M pairs/s, pull %.1f M pairs/s\n", number, pushes, pulls);
      std::fflush(stdout);
    }
    _exit(0);
  }
  processes.push_back(fork());
  if (processes.back() == 0) {
    RunServer(settings, listener, workers);
    _exit(0);
  }
  int status = 0;
  while (wait(&status) > 0) {
    if (status == 0) continue;
    // The others would wait for the one that failed.
    for (pid_t process : processes) kill(process, SIGTERM);
    return 1;
  }
  return 0;
}
