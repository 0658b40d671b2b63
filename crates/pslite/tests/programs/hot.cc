// Workers push integers to keys of both halves of the range, hot and cold ones, and compare every sum to the bit.
//
//   hot ROUNDS [DIRECTORY]   with a directory, worker 0 writes `half` into it in the middle of its rounds, with pushes under way, and
//                            goes on when there is a file `on`
//
// With BEGIN_WITH_A_VALUE in the environment the handlers of servers have a value before the first push.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ps/ps.h"

namespace {

const ps::Key kHalf = ps::kMaxKey / 2;
// All of these are pushed in every round, and so are hot if a plan of 0.9 of all updates is made.
const size_t kOften = 300;
// Of these each round has its own.
const size_t kSeldom = 20;
// More than the scale of a plan lets through; each worker pushes it once.
const float kLarge = 4194304.0f;

std::vector<ps::Key> Often() {
  std::vector<ps::Key> keys;
  for (size_t at = 0; at < kOften; ++at) keys.push_back((at % 2) * kHalf + 3 * at);
  return keys;
}

std::vector<ps::Key> Seldom(int round) {
  std::vector<ps::Key> keys;
  for (size_t at = 0; at < kSeldom; ++at) {
    keys.push_back((at % 2) * kHalf + 100000 + static_cast<size_t>(round) * kSeldom + at);
  }
  keys.push_back(ps::kMaxKey);
  return keys;
}

std::vector<ps::Key> Sorted(std::vector<ps::Key> keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<ps::Key> Of(int round) {
  std::vector<ps::Key> keys = Often(), seldom = Seldom(round);
  keys.insert(keys.end(), seldom.begin(), seldom.end());
  return Sorted(keys);
}

// The value that worker `rank` pushes to a key in a round.
float Value(ps::Key key, int round, int rank) {
  return static_cast<float>(static_cast<int>(key % 7) - 3 + (round + rank) % 3);
}

float Sum(ps::Key key, int rounds, int workers) {
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int rank = 0; rank < workers; ++rank) sum += Value(key, round, rank);
  }
  return sum;
}

void WaitFor(const std::string& file) {
  while (!std::ifstream(file)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void RunWorker(int rounds, const std::string& directory) {
  ps::KVWorker<float> worker(0, 0);
  const int rank = ps::MyRank(), workers = ps::NumWorkers();
  std::vector<int> under_way;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<ps::Key> keys = Of(round);
    std::vector<float> values;
    for (ps::Key key : keys) values.push_back(Value(key, round, rank));
    under_way.push_back(worker.Push(keys, values));
    if (rank == 0 && round == rounds / 2 && !directory.empty()) {
      std::ofstream(directory + "/half") << "half" << std::endl;
      WaitFor(directory + "/on");
    }
    // Not all of them, so that many are under way at once.
    if (round % 8 == 7) {
      for (int timestamp : under_way) worker.Wait(timestamp);
      under_way.clear();
    }
  }
  for (int timestamp : under_way) worker.Wait(timestamp);
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);

  // After a barrier all workers see the results of requests that were waited for before it.
  std::vector<float> pulled;
  const std::vector<ps::Key> often = Sorted(Often());
  worker.Wait(worker.Pull(often, &pulled));
  for (size_t at = 0; at < often.size(); ++at) CHECK_EQ(pulled[at], Sum(often[at], rounds, workers)) << often[at];
  for (int round = 0; round < rounds; ++round) {
    const std::vector<ps::Key> keys = Sorted(Seldom(round));
    std::vector<float> seldom;
    worker.Wait(worker.Pull(keys, &seldom));
    for (size_t at = 0; at < keys.size(); ++at) {
      float expected = 0;
      for (int other = 0; other < workers; ++other) expected += Value(keys[at], round, other);
      if (keys[at] == ps::kMaxKey) expected = Sum(ps::kMaxKey, rounds, workers);
      CHECK_EQ(seldom[at], expected) << keys[at];
    }
  }
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);

  // Without a wait between them a worker reads all its earlier pushes, and none of the later ones.
  const std::vector<ps::Key> own = {often[static_cast<size_t>(rank)], 50000 + static_cast<ps::Key>(rank)};
  std::vector<float> begin;
  worker.Wait(worker.Pull(own, &begin));
  std::vector<std::vector<float>> seen(20);
  std::vector<int> pulls;
  for (size_t step = 0; step < seen.size(); ++step) {
    worker.Push(own, {1.0f, 1.0f});
    if (step % 2 == 0) {
      pulls.push_back(worker.Pull(own, &seen[step]));
    } else {
      pulls.push_back(worker.PushPull(own, {1.0f, 1.0f}, &seen[step]));
    }
  }
  float pushed = 0;
  for (size_t step = 0; step < seen.size(); ++step) {
    worker.Wait(pulls[step]);
    pushed += step % 2 == 0 ? 1.0f : 2.0f;
    for (size_t at = 0; at < own.size(); ++at) CHECK_EQ(seen[step][at], begin[at] + pushed) << "step " << step;
  }

  // Larger than any value that the plan was made of, which costs nothing of it.
  if (std::getenv("LIBRA_PLAN") != nullptr) {
    worker.Wait(worker.Push({own[0]}, {kLarge}));
    std::vector<float> large;
    worker.Wait(worker.Pull({own[0]}, &large));
    CHECK_EQ(large[0], begin[0] + pushed + kLarge);
  }
  std::printf("worker %d: every sum is right\n", rank);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  ps::Start(0);
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    ps::KVServerDefaultHandle<float> handle;
    if (std::getenv("BEGIN_WITH_A_VALUE") != nullptr) handle.store[0] = 0;
    server->set_request_handle(handle);
    ps::RegisterExitCallback([server] { delete server; });
  }
  if (ps::IsWorker()) RunWorker(rounds, argc > 2 ? argv[2] : "");
  ps::Finalize(0, true);
  return 0;
}
