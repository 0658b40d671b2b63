/* Keys with values: workers push and pull them, servers keep them. */
#ifndef PS_KV_APP_H_
#define PS_KV_APP_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/base.h"
#include "ps/simple_app.h"

namespace ps {

/* Keys in ascending order, each once, and their values. Each has as many values as in lens, or all have as many as the others. */
template <typename Val>
struct KVPairs {
  SArray<Key> keys;
  SArray<Val> vals;
  SArray<int> lens;
  int priority = 0;
};

/* The part of a request that a server needs to answer it. */
struct KVMeta {
  int cmd;
  bool push;
  bool pull;
  int sender;
  int timestamp;
  int customer_id;
};

template <typename Val>
class KVWorker : public SimpleApp {
 public:
  using SimpleApp::obj_;
  /* Called when all servers have answered, from the thread of the customer. Not called if a request has failed: Wait throws the reason. */
  using Callback = std::function<void()>;
  /* For each server: true if something goes to it, and its part. */
  using SlicedKVs = std::vector<std::pair<bool, KVPairs<Val>>>;
  using Slicer =
      std::function<void(const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced)>;

  explicit KVWorker(int app_id, int customer_id) : SimpleApp() {
    slicer_ = [](const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced) {
      DefaultSlicer(send, ranges, sliced);
    };
    obj_ = new Customer(app_id, customer_id, [this](const Message& message) { KVWorker::Process(message); });
  }
  virtual ~KVWorker() { this->CloseCustomer(); }

  /* Adds values to those of keys, or whatever the handler of the servers does with them. The arrays are copied. Returns a number for Wait. */
  int Push(const std::vector<Key>& keys, const std::vector<Val>& vals, const std::vector<int>& lens = {}, int cmd = 0,
           const Callback& callback = nullptr, int priority = 0) {
    return ZPush(SArray<Key>(keys), SArray<Val>(vals), SArray<int>(lens), cmd, callback, priority);
  }

  /* Reads the values of keys. The targets of vals and lens are written when the request is done. */
  int Pull(const std::vector<Key>& keys, std::vector<Val>* vals, std::vector<int>* lens = nullptr, int cmd = 0,
           const Callback& callback = nullptr, int priority = 0) {
    return StartPull(SArray<Key>(keys), SArray<Val>(), SArray<int>(), vals, lens, false, cmd, callback, priority);
  }

  /* Both in one trip: the values that are read have those that are pushed in them. */
  int PushPull(const std::vector<Key>& keys, const std::vector<Val>& vals, std::vector<Val>* outs,
               std::vector<int>* lens = nullptr, int cmd = 0, const Callback& callback = nullptr, int priority = 0) {
    CHECK_NOTNULL(outs);
    if (outs->empty()) {
      outs->resize(vals.size());
    } else {
      CHECK_EQ(vals.size(), outs->size());
    }
    const SArray<int> pushed_lens = lens == nullptr ? SArray<int>() : SArray<int>(*lens);
    return StartPull(SArray<Key>(keys), SArray<Val>(vals), pushed_lens, outs, lens, true, cmd, callback, priority);
  }

  void Wait(int timestamp) override { obj_->WaitRequest(timestamp); }

  /* The same without copies: the arrays must not change before the request is done. */
  int ZPush(const SArray<Key>& keys, const SArray<Val>& vals, const SArray<int>& lens = {}, int cmd = 0,
            const Callback& callback = nullptr, int priority = 0) {
    KVPairs<Val> pairs;
    pairs.keys = keys;
    pairs.vals = vals;
    pairs.lens = lens;
    pairs.priority = priority;
    return Send(true, false, cmd, pairs, [callback](std::vector<KVPairs<Val>>*) {
      if (callback) callback();
    });
  }
  int ZPull(const SArray<Key>& keys, SArray<Val>* vals, SArray<int>* lens = nullptr, int cmd = 0,
            const Callback& callback = nullptr, int priority = 0) {
    return StartPull(keys, SArray<Val>(), SArray<int>(), vals, lens, false, cmd, callback, priority);
  }
  int ZPushPull(const SArray<Key>& keys, const SArray<Val>& vals, SArray<Val>* outs, SArray<int>* lens = nullptr,
                int cmd = 0, const Callback& callback = nullptr, int priority = 0) {
    const SArray<int> pushed_lens = lens == nullptr ? SArray<int>() : *lens;
    return StartPull(keys, vals, pushed_lens, outs, lens, true, cmd, callback, priority);
  }

  void set_slicer(const Slicer& slicer) {
    CHECK(slicer) << "invalid slicer";
    slicer_ = slicer;
  }

 private:
  using Finish = std::function<void(std::vector<KVPairs<Val>>* answers)>;

  /* A request that is under way. */
  struct Open {
    size_t answers_left;
    bool refused;
    /* The keys that each server was asked for, by its rank: it need not repeat them. */
    std::vector<SArray<Key>> keys;
    std::vector<KVPairs<Val>> answers;
    Finish finish;
  };

  /* C and D are std::vector or SArray. */
  template <typename C, typename D>
  int StartPull(const SArray<Key>& keys, const SArray<Val>& vals, const SArray<int>& pushed_lens, C* outs, D* lens,
                bool push, int cmd, const Callback& callback, int priority) {
    CHECK_NOTNULL(outs);
    KVPairs<Val> pairs;
    pairs.keys = keys;
    pairs.vals = vals;
    pairs.lens = pushed_lens;
    pairs.priority = priority;
    return Send(push, true, cmd, pairs, [keys, outs, lens, callback](std::vector<KVPairs<Val>>* answers) {
      Fill(keys, answers, outs, lens);
      if (callback) callback();
    });
  }

  template <typename C, typename D>
  static void Fill(const SArray<Key>& keys, std::vector<KVPairs<Val>>* answers, C* outs, D* lens) {
    std::sort(answers->begin(), answers->end(),
              [](const KVPairs<Val>& a, const KVPairs<Val>& b) { return a.keys.front() < b.keys.front(); });
    size_t key_count = 0, value_count = 0;
    for (const KVPairs<Val>& answer : *answers) {
      key_count += answer.keys.size();
      value_count += answer.vals.size();
    }
    CHECK_EQ(key_count, keys.size()) << "servers have answered for " << key_count << " keys of " << keys.size();
    if (outs->empty()) outs->resize(value_count);
    CHECK_EQ(outs->size(), value_count) << "there is room for " << outs->size() << " values, and " << value_count
                                        << " were pulled";
    if (lens != nullptr) {
      if (lens->empty()) lens->resize(keys.size());
      CHECK_EQ(lens->size(), keys.size());
    }
    size_t key = 0, value = 0;
    for (const KVPairs<Val>& answer : *answers) {
      std::copy(answer.vals.begin(), answer.vals.end(), outs->data() + value);
      value += answer.vals.size();
      if (lens == nullptr) continue;
      const int each = static_cast<int>(answer.vals.size() / answer.keys.size());
      for (size_t at = 0; at < answer.keys.size(); ++at) {
        (*lens)[key++] = answer.lens.empty() ? each : answer.lens[at];
      }
    }
  }

  int Send(bool push, bool pull, int cmd, const KVPairs<Val>& pairs, const Finish& finish) {
    const std::vector<Range>& ranges = Postoffice::Get()->GetServerKeyRanges();
    SlicedKVs sliced;
    slicer_(pairs, ranges, &sliced);
    CHECK_LE(sliced.size(), ranges.size()) << "a slicer has made slices for more servers than there are";
    Open open;
    open.answers_left = 0;
    open.refused = false;
    open.keys.resize(ranges.size());
    for (size_t rank = 0; rank < sliced.size(); ++rank) {
      if (!sliced[rank].first) continue;
      ++open.answers_left;
      open.keys[rank] = sliced[rank].second.keys;
    }
    const size_t skipped = ranges.size() - open.answers_left;
    // Requests of several threads keep their order at each server, and none is answered before it is noted down.
    std::lock_guard<std::mutex> sending(send_mutex_);
    const int timestamp = obj_->NewRequest(kServerGroup);
    if (open.answers_left == 0) {
      finish(&open.answers);
      obj_->AddResponse(timestamp, static_cast<int>(skipped));
      return timestamp;
    }
    open.finish = finish;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open_.emplace(timestamp, std::move(open));
    }
    if (skipped > 0) obj_->AddResponse(timestamp, static_cast<int>(skipped));
    for (size_t rank = 0; rank < sliced.size(); ++rank) {
      if (!sliced[rank].first) continue;
      const KVPairs<Val>& slice = sliced[rank].second;
      Message message;
      message.meta.app_id = obj_->app_id();
      message.meta.customer_id = obj_->customer_id();
      message.meta.request = true;
      message.meta.push = push;
      message.meta.pull = pull;
      message.meta.head = cmd;
      message.meta.timestamp = timestamp;
      message.meta.priority = pairs.priority;
      message.meta.value_type = GetDataType<Val>();
      message.meta.recver = Postoffice::ServerRankToID(static_cast<int>(rank));
      message.keys = slice.keys;
      message.vals = SArray<char>(slice.vals);
      message.lens = slice.lens;
      obj_->Send(message);
    }
    return timestamp;
  }

  void Process(const Message& message) override {
    if (message.meta.simple_app) {
      SimpleApp::Process(message);
      return;
    }
    Open done;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = open_.find(message.meta.timestamp);
      if (found == open_.end()) return;
      Open& open = found->second;
      const size_t rank = static_cast<size_t>(Postoffice::IDtoRank(message.meta.sender));
      open.refused |= message.meta.refused;
      if (message.meta.pull && !message.meta.refused && rank < open.keys.size() && !open.keys[rank].empty()) {
        KVPairs<Val> answer;
        answer.keys = message.keys.empty() ? open.keys[rank] : message.keys;
        answer.vals = SArray<Val>(message.vals);
        answer.lens = message.lens;
        open.answers.push_back(std::move(answer));
      }
      if (--open.answers_left > 0) return;
      done = std::move(open);
      open_.erase(found);
    }
    if (!done.refused) done.finish(&done.answers);
  }

  static void DefaultSlicer(const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced) {
    sliced->resize(ranges.size());
    const size_t key_count = send.keys.size();
    if (key_count == 0) return;
    size_t each = 0;
    if (send.lens.empty()) {
      each = send.vals.size() / key_count;
      CHECK_EQ(each * key_count, send.vals.size()) << "values do not divide evenly among keys";
    } else {
      CHECK_EQ(send.lens.size(), key_count);
    }
    size_t key = 0, value = 0;
    for (size_t rank = 0; rank < ranges.size(); ++rank) {
      // The last server has all that is left, kMaxKey as well.
      const Key* const begin = send.keys.begin() + key;
      const bool is_last = rank + 1 == ranges.size();
      const Key* const end =
          is_last ? send.keys.end() : std::lower_bound(begin, send.keys.end(), ranges[rank].end());
      const size_t key_end = key + static_cast<size_t>(end - begin);
      size_t value_end = value + each * (key_end - key);
      KVPairs<Val>& slice = (*sliced)[rank].second;
      if (!send.lens.empty()) {
        slice.lens = send.lens.segment(key, key_end);
        if (!send.vals.empty()) {
          for (int length : slice.lens) value_end += static_cast<size_t>(length);
        }
      }
      (*sliced)[rank].first = key_end > key;
      slice.keys = send.keys.segment(key, key_end);
      slice.vals = send.vals.segment(value, value_end);
      key = key_end;
      value = value_end;
    }
  }

  std::mutex send_mutex_;
  std::mutex mutex_;
  std::unordered_map<int, Open> open_;
  Slicer slicer_;
};

template <typename Val>
struct KVServerDefaultHandle;

template <typename Val>
class KVServer : public SimpleApp {
 public:
  using SimpleApp::obj_;
  using ReqHandle =
      std::function<void(const KVMeta& meta, const KVPairs<Val>& data, KVServer* server)>;

  explicit KVServer(int app_id) : SimpleApp() {
    // Nothing is handled before obj_ is set.
    obj_ = new Customer(app_id, app_id, [this](const Message& message) { KVServer::Process(message); }, true);
  }
  virtual ~KVServer() { this->CloseCustomer(); }

  using SimpleApp::set_request_handle;
  void set_request_handle(const ReqHandle& handle) {
    CHECK(handle) << "invalid request handle";
    {
      std::lock_guard<std::mutex> lock(mutex_);
      CHECK(!is_native_) << "the default handler cannot be replaced";
      handle_ = std::make_shared<ReqHandle>(handle);
    }
    obj_->Release();
  }

  /* The default handler of floats runs in the library, where it is several times as fast; it begins with the values stored already. */
  void set_request_handle(const KVServerDefaultHandle<Val>& handle) {
    SetDefault(handle, std::is_same<Val, float>());
  }

  /* Answers a request, now or later, from any thread. */
  void Response(const KVMeta& request, const KVPairs<Val>& response = KVPairs<Val>()) {
    Message message;
    message.meta.app_id = obj_->app_id();
    message.meta.customer_id = request.customer_id;
    message.meta.push = request.push;
    message.meta.pull = request.pull;
    message.meta.head = request.cmd;
    message.meta.timestamp = request.timestamp;
    message.meta.recver = request.sender;
    message.meta.value_type = GetDataType<Val>();
    message.keys = response.keys;
    message.vals = SArray<char>(response.vals);
    message.lens = response.lens;
    obj_->Send(message);
  }
  using SimpleApp::Response;

 protected:
  void IsOver() override {
    SimpleApp::IsOver();
    if (obj_ != nullptr) obj_->Release();
  }

 private:
  void SetDefault(const KVServerDefaultHandle<Val>& handle, std::true_type /*native*/) {
    std::vector<Key> keys;
    std::vector<float> vals;
    for (const auto& pair : handle.store) {
      keys.push_back(pair.first);
      vals.push_back(static_cast<float>(pair.second));
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_native_ = true;
    }
    obj_->ServeSums(keys.data(), vals.data(), keys.size());
  }
  void SetDefault(const KVServerDefaultHandle<Val>& handle, std::false_type /*native*/) {
    set_request_handle(ReqHandle(handle));
  }

  void Process(const Message& message) override {
    if (message.meta.simple_app) {
      SimpleApp::Process(message);
      return;
    }
    if (!message.meta.request) return;
    // Not a copy of it: handlers may have a state.
    std::shared_ptr<ReqHandle> handle;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      handle = handle_;
    }
    if (!handle) throw dmlc::Error("this server has no request handler");
    KVMeta meta;
    meta.cmd = message.meta.head;
    meta.push = message.meta.push;
    meta.pull = message.meta.pull;
    meta.sender = message.meta.sender;
    meta.timestamp = message.meta.timestamp;
    meta.customer_id = message.meta.customer_id;
    KVPairs<Val> data;
    data.keys = message.keys;
    data.vals = SArray<Val>(message.vals);
    data.lens = message.lens;
    data.priority = message.meta.priority;
    (*handle)(meta, data, this);
  }

  std::mutex mutex_;
  std::shared_ptr<ReqHandle> handle_;
  bool is_native_ = false;
};

/* Each key has one value, the sum of all that were pushed to it. */
template <typename Val>
struct KVServerDefaultHandle {
  void operator()(const KVMeta& meta, const KVPairs<Val>& data, KVServer<Val>* server) {
    const size_t count = data.keys.size();
    KVPairs<Val> response;
    if (meta.push) CHECK_EQ(count, data.vals.size()) << "the default handler adds one value to each key";
    if (meta.pull) {
      response.keys = data.keys;
      response.vals.resize(count);
    }
    for (size_t at = 0; at < count; ++at) {
      Val& sum = store[data.keys[at]];
      if (meta.push) sum += data.vals[at];
      if (meta.pull) response.vals[at] = sum;
    }
    server->Response(meta, response);
  }
  std::unordered_map<Key, Val> store;
};

}  // namespace ps

#endif  // PS_KV_APP_H_
