// Programs that misbehave, or whose peers do. The first argument selects the case.
//
//   death PID_DIRECTORY   every process writes its number there, named after its role and rank, and then waits for an answer that never comes
//   callback DIRECTORY    the same, but the worker waits for its callback only, and is told by a failure callback
//   deferred DIRECTORY    servers answer from a thread of their own, when the process that asked has died, and workers ask servers that may have
//   late                  handlers are set long after requests have come
//   refused               a handler throws, and the default handler gets values that do not fit
//   order                 a worker pushes and pulls the same keys without waiting, and each pull must see all pushes before it

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "ps/ps.h"

namespace {

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

const char* Role() { return ps::IsServer() ? "server" : ps::IsWorker() ? "worker" : "scheduler"; }

void WritePid(const std::string& directory) {
  const std::string name = directory + "/" + Role() + std::to_string(ps::MyRank());
  std::ofstream(name + ".part") << getpid() << std::endl;
  std::rename((name + ".part").c_str(), name.c_str());
}

// Prints the process that has died, and ends well: exit code 3 is what the test expects.
int Death(const std::string& directory, bool by_callback) {
  ps::Start(0);
  std::atomic<bool> is_told(false);
  ps::Postoffice::Get()->RegisterFailureCallback([&is_told](const std::string&) { is_told = true; });
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle([](const ps::KVMeta&, const ps::KVPairs<float>&, ps::KVServer<float>*) {});
    ps::RegisterExitCallback([server] { delete server; });
  }
  bool is_caught = false;
  try {
    if (ps::IsWorker()) {
      ps::KVWorker<float> worker(0, 0);
      const int timestamp = worker.Push({1, ps::kMaxKey}, {1.0f, 1.0f});
      WritePid(directory);
      if (by_callback) {
        while (!is_told) Sleep(5);
        // A callback that is registered too late is called as well.
        std::string again;
        ps::Postoffice::Get()->RegisterFailureCallback([&again](const std::string& text) { again = text; });
        CHECK_NE(again.find("has died"), std::string::npos) << again;
      }
      worker.Wait(timestamp);
    } else {
      WritePid(directory);
    }
  } catch (const ps::PeerError& error) {
    std::printf("%s %d was told: %s\n", Role(), ps::MyRank(), error.what());
    is_caught = true;
  }
  try {
    ps::Finalize(0, true);
  } catch (const ps::PeerError& error) {
    if (!is_caught) std::printf("%s was told at the end: %s\n", Role(), error.what());
    return 3;
  }
  return 0;
}

int Deferred(const std::string& directory) {
  ps::Start(0);
  std::atomic<bool> is_told(false);
  ps::Postoffice::Get()->RegisterFailureCallback([&is_told](const std::string&) { is_told = true; });
  std::unique_ptr<ps::KVServer<float>> server;
  std::atomic<int> answered(0);
  std::vector<std::thread> deferred;
  std::mutex mutex;
  if (ps::IsServer()) {
    server.reset(new ps::KVServer<float>(0));
    server->set_request_handle([&](const ps::KVMeta& meta, const ps::KVPairs<float>&, ps::KVServer<float>* self) {
      std::lock_guard<std::mutex> lock(mutex);
      if (is_told) {
        self->Response(meta);
        return;
      }
      deferred.emplace_back([&is_told, &answered, meta, self] {
        while (!is_told) Sleep(5);
        self->Response(meta);
        ++answered;
      });
    });
  }
  if (ps::IsWorker()) {
    ps::KVWorker<float> worker(0, 0);
    worker.Push({1, ps::kMaxKey}, {1.0f, 1.0f});
    WritePid(directory);
    while (!is_told) Sleep(5);
    std::string said;
    try {
      // To ask is no error: to wait is.
      const int timestamp = worker.Push({1, ps::kMaxKey}, {1.0f, 1.0f});
      worker.Wait(timestamp);
    } catch (const ps::PeerError& error) {
      said = error.what();
    }
    std::printf("worker was told: %s\n", said.c_str());
  } else {
    // Both workers have asked all servers when all have written their names.
    if (ps::IsServer()) {
      for (size_t asked = 0; asked < static_cast<size_t>(ps::NumWorkers());) {
        Sleep(5);
        std::lock_guard<std::mutex> lock(mutex);
        asked = deferred.size();
      }
    }
    WritePid(directory);
    while (!is_told) Sleep(5);
  }
  std::vector<std::thread> answering;
  {
    std::lock_guard<std::mutex> lock(mutex);
    answering.swap(deferred);
  }
  for (std::thread& thread : answering) thread.join();
  CHECK_EQ(static_cast<size_t>(answered.load()), answering.size());
  try {
    ps::Finalize(0, true);
  } catch (const ps::PeerError& error) {
    std::printf("%s was told at the end: %s\n", Role(), error.what());
    return 3;
  }
  return 0;
}

int Late() {
  ps::Start(0);
  std::atomic<int> simple(0);
  auto count = [&simple](const ps::SimpleData& request, ps::SimpleApp* self) {
    ++simple;
    self->Response(request, "late");
  };
  if (ps::IsServer()) {
    Sleep(200);
    auto* server = new ps::KVServer<float>(0);
    Sleep(200);
    server->set_request_handle(ps::SimpleApp::Handle(count));
    Sleep(200);
    server->set_request_handle(ps::KVServerDefaultHandle<float>());
    ps::RegisterExitCallback([server] { delete server; });
  } else if (ps::IsWorker()) {
    ps::KVWorker<float> worker(0, 0);
    std::vector<float> sums;
    const int push = worker.Push({1, 2, ps::kMaxKey}, {1, 2, 3});
    const int pull = worker.Pull({1, 2, ps::kMaxKey}, &sums);
    worker.Wait(worker.Request(5, "hello", ps::kServerGroup));
    worker.Wait(push);
    worker.Wait(pull);
    CHECK_GE(sums[2], 3.0f);
  }
  ps::Finalize(0, true);
  if (ps::IsServer()) CHECK_EQ(simple.load(), std::atoi(getenv("DMLC_NUM_WORKER")));
  return 0;
}

template <typename Action>
std::string ErrorOf(const Action& action) {
  try {
    action();
  } catch (const dmlc::Error& error) {
    return error.what();
  }
  return "";
}

int Refused() {
  ps::Start(0);
  if (ps::IsServer()) {
    auto* sums = new ps::KVServer<float>(0);
    sums->set_request_handle(ps::KVServerDefaultHandle<float>());
    auto* throwing = new ps::KVServer<int>(1);
    throwing->set_request_handle([](const ps::KVMeta& meta, const ps::KVPairs<int>&, ps::KVServer<int>* server) {
      if (meta.cmd == 13) throw std::runtime_error("thirteen");
      server->Response(meta);
    });
    ps::RegisterExitCallback([sums, throwing] {
      delete sums;
      delete throwing;
    });
  }
  if (ps::IsWorker()) {
    ps::KVWorker<float> sums(0, 0);
    ps::KVWorker<int> other(1, 0);
    const std::string wide = ErrorOf([&] { sums.Wait(sums.Push({1, 2}, {1, 2, 3, 4})); });
    CHECK_NE(wide.find("one value to each key"), std::string::npos) << wide;
    const std::string thrown = ErrorOf([&] { other.Wait(other.Push({1}, {1}, {}, 13)); });
    CHECK_NE(thrown.find("thirteen"), std::string::npos) << thrown;
    const std::string own = ErrorOf([&] {
      other.Wait(other.Push({1}, {1}, {}, 0, [] { throw std::runtime_error("in a callback"); }));
    });
    CHECK_NE(own.find("in a callback"), std::string::npos) << own;
    const std::string unknown = ErrorOf([&] { other.Wait(1000); });
    CHECK_NE(unknown.find("1000"), std::string::npos) << unknown;
    // Everything goes on.
    std::vector<float> values;
    sums.Wait(sums.Push({1, 2}, {1, 2}));
    sums.Wait(sums.Pull({1, 2}, &values));
    CHECK_GE(values[1], 2.0f);
  }
  ps::Finalize(0, true);
  return 0;
}

int Order() {
  ps::Start(0);
  if (ps::IsServer()) {
    auto* sums = new ps::KVServer<float>(0);
    sums->set_request_handle(ps::KVServerDefaultHandle<float>());
    auto* doubles = new ps::KVServer<double>(1);
    doubles->set_request_handle(ps::KVServerDefaultHandle<double>());
    ps::RegisterExitCallback([sums, doubles] {
      delete sums;
      delete doubles;
    });
  }
  if (ps::IsWorker()) {
    ps::KVWorker<float> floats(0, 0);
    ps::KVWorker<double> doubles(1, 0);
    const ps::Key mine = static_cast<ps::Key>(ps::MyRank());
    std::vector<ps::Key> keys;
    for (ps::Key key = 0; key < 1000; ++key) keys.push_back(ps::kMaxKey / 1000 * key + mine);
    const int steps = 100;
    std::vector<std::vector<float>> pulled(steps);
    std::vector<std::vector<double>> pulled_doubles(steps);
    std::vector<int> timestamps, timestamps_of_doubles;
    for (int step = 0; step < steps; ++step) {
      floats.Push(keys, std::vector<float>(keys.size(), 1));
      timestamps.push_back(floats.Pull(keys, &pulled[step]));
      doubles.Push(keys, std::vector<double>(keys.size(), 1));
      timestamps_of_doubles.push_back(doubles.Pull(keys, &pulled_doubles[step]));
    }
    for (int step = 0; step < steps; ++step) {
      floats.Wait(timestamps[step]);
      doubles.Wait(timestamps_of_doubles[step]);
      for (float value : pulled[step]) CHECK_EQ(value, static_cast<float>(step + 1));
      for (double value : pulled_doubles[step]) CHECK_EQ(value, step + 1);
    }
  }
  ps::Finalize(0, true);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "death" || how == "callback") return Death(argv[2], how == "callback");
  if (how == "deferred") return Deferred(argv[2]);
  if (how == "late") return Late();
  if (how == "refused") return Refused();
  return Order();
}
