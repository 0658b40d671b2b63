// The smallest program with everything in it: workers push gradients to a handler of the server's own, and read weights back.
//
//   scripts/local.sh 2 2 ./sums

#include <cstdio>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

namespace {

const int kSteps = 10;

// Plain SGD with a rate of 0.5, for any number of values a key.
class Sgd {
 public:
  void operator()(const ps::KVMeta& meta, const ps::KVPairs<float>& data, ps::KVServer<float>* server) {
    const size_t count = data.keys.size();
    const size_t width = meta.push ? data.vals.size() / count : 2;
    ps::KVPairs<float> answer;
    for (size_t at = 0; at < count; ++at) {
      std::vector<float>& weight = weights_[data.keys[at]];
      weight.resize(width);
      for (size_t lane = 0; lane < width && meta.push; ++lane) weight[lane] -= 0.5f * data.vals[at * width + lane];
      if (meta.pull) answer.vals.append(ps::SArray<float>(weight));
    }
    if (meta.pull) answer.keys = data.keys;
    server->Response(meta, answer);
  }

 private:
  std::unordered_map<ps::Key, std::vector<float>> weights_;
};

void RunWorker() {
  ps::KVWorker<float> worker(0, 0);
  const std::vector<ps::Key> keys = {0, 7, ps::kMaxKey / 2, ps::kMaxKey - 1, ps::kMaxKey};
  const std::vector<float> gradients(2 * keys.size(), 1.0f);
  for (int step = 0; step < kSteps; ++step) worker.Wait(worker.Push(keys, gradients));
  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);

  std::vector<float> weights;
  bool is_called = false;
  worker.Wait(worker.Pull(keys, &weights, nullptr, 0, [&is_called] { is_called = true; }));
  CHECK(is_called);
  CHECK_EQ(weights.size(), 2 * keys.size());
  const float expected = -0.5f * static_cast<float>(kSteps * ps::NumWorkers());
  for (float weight : weights) CHECK_EQ(weight, expected);
  std::printf("worker %d of %d: every weight is %g\n", ps::MyRank(), ps::NumWorkers(), static_cast<double>(expected));
}

}  // namespace

int main() {
  ps::Start(0);
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(Sgd());
    ps::RegisterExitCallback([server] { delete server; });
  }
  if (ps::IsWorker()) RunWorker();
  ps::Finalize(0, true);
  return 0;
}
