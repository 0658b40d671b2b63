// Throughput of pushes and pulls of sparse rows: keys drawn by Zipf's law, distinct and ascending in each request, the default handler.
//
//   sparse_benchmark [KEYS [KEYS_A_REQUEST [SECONDS [REQUESTS_UNDER_WAY [HASHED]]]]]
//
// Keys are 0, 1, 2 and so on; with HASHED = 1 they are spread over all 64 bits.
// The last worker line of each kind has the number of pairs of a key and a value that this worker sent or received in a second.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "ps/ps.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  size_t keys, keys_a_request, under_way;
  double seconds;
  bool hashed;
};

// The key of a row: its number, or a bijection of it (the finalizer of SplitMix64).
ps::Key KeyOf(const Settings& settings, uint64_t row) {
  if (!settings.hashed) return row;
  row = (row ^ (row >> 30)) * 0xbf58476d1ce4e5b9u;
  row = (row ^ (row >> 27)) * 0x94d049bb133111ebu;
  return row ^ (row >> 31);
}

// Requests of so many distinct keys. Ranks are scattered over the keys.
std::vector<ps::SArray<ps::Key>> Draw(const Settings& settings, size_t requests, unsigned seed) {
  std::vector<double> cumulated(settings.keys);
  double sum = 0;
  for (size_t rank = 0; rank < settings.keys; ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -1.05);
    cumulated[rank] = sum;
  }
  std::vector<ps::Key> of_rank(settings.keys);
  for (size_t rank = 0; rank < settings.keys; ++rank) of_rank[rank] = rank;
  std::mt19937_64 random(7);
  std::shuffle(of_rank.begin(), of_rank.end(), random);
  random.seed(seed);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<ps::SArray<ps::Key>> drawn;
  std::vector<bool> is_taken(settings.keys);
  for (size_t request = 0; request < requests; ++request) {
    std::vector<ps::Key> keys;
    while (keys.size() < settings.keys_a_request) {
      const auto found = std::lower_bound(cumulated.begin(), cumulated.end(), uniform(random));
      const size_t rank = static_cast<size_t>(found - cumulated.begin());
      if (rank >= settings.keys || is_taken[rank]) continue;
      is_taken[rank] = true;
      keys.push_back(KeyOf(settings, of_rank[rank]));
    }
    std::fill(is_taken.begin(), is_taken.end(), false);
    std::sort(keys.begin(), keys.end());
    drawn.emplace_back(keys);
  }
  return drawn;
}

// Makes requests for a while. Returns millions of pairs a second.
template <typename Start>
double Measure(ps::KVWorker<float>* worker, const Settings& settings, const Start& start) {
  std::deque<int> under_way;
  const Clock::time_point begin = Clock::now();
  size_t requests = 0;
  double elapsed = 0;
  while (elapsed < settings.seconds) {
    under_way.push_back(start(requests++));
    if (under_way.size() >= settings.under_way) {
      worker->Wait(under_way.front());
      under_way.pop_front();
    }
    elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  for (int timestamp : under_way) worker->Wait(timestamp);
  elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  return static_cast<double>(requests * settings.keys_a_request) / elapsed / 1e6;
}

void RunWorker(const Settings& settings) {
  ps::KVWorker<float> worker(0, 0);
  const std::vector<ps::SArray<ps::Key>> requests =
      Draw(settings, 200, static_cast<unsigned>(ps::MyRank() + 1));
  const ps::SArray<float> ones(settings.keys_a_request, 1.0f);
  std::vector<ps::SArray<float>> pulled(settings.under_way + 1, ps::SArray<float>(settings.keys_a_request));

  // All rows are there before anything is measured.
  ps::SArray<ps::Key> all(settings.keys);
  for (size_t row = 0; row < settings.keys; ++row) all[row] = KeyOf(settings, row);
  std::sort(all.begin(), all.end());
  for (size_t key = 0; key < settings.keys; key += 100000) {
    const size_t end = std::min(settings.keys, key + 100000);
    worker.Wait(worker.ZPush(all.segment(key, end), ps::SArray<float>(end - key, 0.5f)));
  }
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const double pushes = Measure(&worker, settings, [&](size_t request) {
      return worker.ZPush(requests[request % requests.size()], ones);
    });
    const double pulls = Measure(&worker, settings, [&](size_t request) {
      return worker.ZPull(requests[request % requests.size()], &pulled[request % pulled.size()]);
    });
    std::printf("worker %d: push %.1f M pairs/s, pull %.1f M pairs/s\n", ps::MyRank(), pushes, pulls);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto argument = [&](int at, double usual) { return argc > at ? std::atof(argv[at]) : usual; };
  const Settings settings = {static_cast<size_t>(argument(1, 1e7)), static_cast<size_t>(argument(2, 1e4)),
                             static_cast<size_t>(argument(4, 8)), argument(3, 4), argument(5, 0) != 0};
  ps::Start(0);
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(ps::KVServerDefaultHandle<float>());
    ps::RegisterExitCallback([server] { delete server; });
  }
  if (ps::IsWorker()) RunWorker(settings);
  ps::Finalize(0, true);
  return 0;
}
