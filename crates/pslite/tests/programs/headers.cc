// Compiles everything that the headers have, as programs of ps-lite use it.

#include "ps/ps.h"

template class ps::SArray<char>;
template class ps::SArray<int>;
template class ps::SArray<double>;
template class ps::KVWorker<char>;
template class ps::KVWorker<float>;
template class ps::KVServer<char>;
template class ps::KVServer<float>;
template struct ps::KVServerDefaultHandle<float>;
template struct ps::KVServerDefaultHandle<int>;

// The key-value store of MXNet, as far as it uses its servers.
class Store {
 public:
  void Start() {
    using namespace std::placeholders;
    ps::StartAsync(0, "store\0");
    server_ = new ps::KVServer<char>(0);
    static_cast<ps::SimpleApp*>(server_)->set_request_handle(std::bind(&Store::Command, this, _1, _2));
    server_->set_request_handle(std::bind(&Store::Data, this, _1, _2, _3));
    if (!ps::Postoffice::Get()->is_recovery()) {
      ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup + ps::kServerGroup + ps::kScheduler);
    }
    ps::RegisterExitCallback([this]() { delete server_; });
  }

  void Command(const ps::SimpleData& received, ps::SimpleApp* app) { app->Response(received); }

  void Data(const ps::KVMeta& meta, const ps::KVPairs<char>& data, ps::KVServer<char>* server) {
    CHECK_EQ(data.keys.size(), static_cast<size_t>(1));
    if (meta.pull) {
      if (stored_.empty()) LOG(FATAL) << "init " << data.keys[0] << " first";
      ps::KVPairs<char> response;
      response.keys = data.keys;
      response.lens = {static_cast<int>(stored_.size())};
      response.vals = stored_;
      server->Response(meta, response);
    } else {
      stored_.CopyFrom(data.vals.begin(), data.vals.end());
      server->Response(meta);
    }
  }

  void Send(ps::KVWorker<char>* worker, float* values, size_t count) {
    ps::SArray<char> vals(reinterpret_cast<char*>(values), count * sizeof(*values), false);
    const ps::Range first = ps::Postoffice::Get()->GetServerKeyRanges()[0];
    ps::SArray<ps::Key> keys = {first.begin()};
    ps::SArray<int> lens = {static_cast<int>(vals.size())};
    CHECK_NOTNULL(worker)->ZPush(keys, vals, lens, 1, []() { LL << "pushed"; }, -7);
    worker->ZPull(keys, &vals, &lens, 1, nullptr, -7);
    const int command = worker->Request(3, "stop", ps::kServerGroup);
    worker->Wait(command);
    const int barrier_of = worker->get_customer()->customer_id();
    if (ps::Postoffice::Get()->GetDeadNodes(60).empty()) ps::Finalize(barrier_of, true);
    else PS_VLOG(1) << ps::DebugStr(values, static_cast<int>(count)) << vals;
    DCHECK_LT(barrier_of, 7) << "customers are few";
    LOG_IF(INFO, barrier_of > 0) << ps::FindRange(keys, first.begin(), first.end()).size();
  }

 private:
  ps::KVServer<char>* server_ = nullptr;
  ps::SArray<char> stored_;
};

int main() {
  ps::Environment::Init({{"DMLC_ROLE", "scheduler"}});
  CHECK_EQ(std::string(ps::Environment::Get()->find("DMLC_ROLE")), "scheduler");
  CHECK_EQ(ps::GetEnv("LIBRA_NOT_SET", 7), 7);
  Store store;
  if (ps::NumServers() > 0) store.Start();
  if (ps::IsWorker()) store.Send(nullptr, nullptr, 0);

  // Arrays share memory, and reject values that do not fit.
  ps::SArray<int> ints = {1, 2, 3};
  ps::SArray<char> bytes(ints);
  bytes[0] = 5;
  CHECK_EQ(ints[0], 5);
  CHECK_EQ(bytes.size(), 3 * sizeof(int));
  ps::SArray<int> part = ints.segment(1, 3);
  part[0] = 9;
  CHECK_EQ(ints[1], 9);
  ps::SArray<int> moved = ints;
  moved.resize(100, 4);
  moved[1] = 1;
  CHECK_EQ(ints[1], 9);
  CHECK_EQ(moved.back(), 4);
  moved.append(moved.segment(0, 2));
  moved.push_back(moved.front());
  CHECK_EQ(moved.size(), 103u);
  bool is_refused = false;
  try {
    ps::SArray<int> odd(ps::SArray<char>(3));
  } catch (const dmlc::Error&) {
    is_refused = true;
  }
  CHECK(is_refused);
  // The last range has all keys that are left.
  if (is_refused) CHECK_EQ(ps::Postoffice::WorkerRankToID(1), 11);
  else CHECK(false);
  return 0;
}
