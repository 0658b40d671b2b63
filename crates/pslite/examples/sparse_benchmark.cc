// Throughput of pushes and pulls of sparse rows: keys drawn by Zipf's law, distinct and ascending in each request, the default handler.
//
//   sparse_benchmark [KEYS [KEYS_A_REQUEST [SECONDS [REQUESTS_UNDER_WAY [HASHED]]]]]
//
// Keys are 0, 1, 2 and so on; with HASHED = 1 they are spread over all 64 bits.
// The last worker line of each kind has the number of pairs of a key and a value that this worker sent or received in a second.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <vector>

#include "ps/ps.h"
#include "sparse_requests.h"

namespace {

using sparse::Settings;
using Clock = std::chrono::steady_clock;

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
  std::vector<ps::SArray<ps::Key>> requests;
  for (const auto& keys : sparse::Draw(settings, 200, static_cast<unsigned>(ps::MyRank() + 1))) requests.emplace_back(keys);
  const ps::SArray<float> ones(settings.keys_a_request, 1.0f);
  std::vector<ps::SArray<float>> pulled(settings.under_way + 1, ps::SArray<float>(settings.keys_a_request));

  // All rows are there before anything is measured.
  ps::SArray<ps::Key> all(settings.keys);
  for (size_t row = 0; row < settings.keys; ++row) all[row] = sparse::KeyOf(settings, row);
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
  const Settings settings = Settings::From(argc, argv);
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
