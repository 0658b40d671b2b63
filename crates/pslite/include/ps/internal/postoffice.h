/* The node of this process. */
#ifndef PS_INTERNAL_POSTOFFICE_H_
#define PS_INTERNAL_POSTOFFICE_H_

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ps/base.h"
#include "ps/range.h"

namespace ps {

/* Something that must be notified when this process has nothing left to set up. */
class SetUp {
 public:
  virtual ~SetUp() {}
  virtual void IsOver() = 0;
};

class Postoffice {
 public:
  static Postoffice* Get() {
    // Never destroyed: customers of static lifetime may be closed after it would have been.
    static Postoffice* const postoffice = new Postoffice();
    return postoffice;
  }

  void Start(int customer_id, const char* /*argv0*/, const bool do_barrier) {
    const std::shared_ptr<libra_node> node = Open();
    Require(libra_node_join(node.get()));
    setenv("DMLC_RANK", std::to_string(my_rank()).c_str(), 1);
    if (do_barrier) Barrier(customer_id, kWorkerGroup + kServerGroup + kScheduler);
  }

  /* Throws at the end if a process has died, when all is closed and the exit callback was called. */
  void Finalize(const int customer_id, const bool do_barrier = true) {
    std::exception_ptr error;
    for (SetUp* set_up : Waiting()) set_up->IsOver();
    try {
      if (do_barrier) Barrier(customer_id, kWorkerGroup + kServerGroup + kScheduler);
    } catch (const dmlc::Error&) {
      error = std::current_exception();
    }
    if (customer_id == 0) {
      Close();
      Callback callback;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        callback.swap(exit_callback_);
      }
      if (callback) callback();
    }
    if (error) std::rethrow_exception(error);
  }

  using Callback = std::function<void()>;
  void RegisterExitCallback(const Callback& callback) {
    std::lock_guard<std::mutex> lock(mutex_);
    exit_callback_ = callback;
  }

  /* Not in ps-lite: called once with the process that has died, for code that waits for something that is not a wait of this library.
     A callback that is registered after a death is called at once. */
  void RegisterFailureCallback(const std::function<void(const std::string&)>& callback) {
    const std::shared_ptr<libra_node> opened = node();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      failure_callback_ = callback;
    }
    Require(libra_node_on_failure(opened.get(), &Postoffice::Failed, this));
  }

  void Barrier(int /*customer_id*/, int node_group) { Require(libra_node_barrier(node().get(), node_group)); }

  /* Nodes that have died, or that were silent for so many seconds. */
  std::vector<int> GetDeadNodes(int seconds = 60) {
    const std::shared_ptr<libra_node> opened = node();
    std::vector<int> ids(static_cast<size_t>(num_workers() + num_servers() + 1));
    size_t count = 0;
    Require(libra_node_dead(opened.get(), static_cast<uint32_t>(std::max(seconds, 0)), ids.data(), ids.size(), &count));
    ids.resize(count);
    return ids;
  }

  /* The nodes of a group, or the one node of this number. */
  const std::vector<int>& GetNodeIDs(int node_group) const {
    const std::shared_ptr<libra_node> opened = node();
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = node_ids_.find(node_group);
    if (found == node_ids_.end()) {
      std::vector<int> ids(static_cast<size_t>(num_workers() + num_servers() + 1));
      size_t count = 0;
      Require(libra_node_ids(opened.get(), node_group, ids.data(), ids.size(), &count));
      ids.resize(count);
      found = node_ids_.emplace(node_group, ids).first;
    }
    return found->second;
  }

  /* The keys of each server. The last range includes kMaxKey, although its end is lower: there is no number above. */
  const std::vector<Range>& GetServerKeyRanges() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ranges_.empty()) {
      const Key servers = static_cast<Key>(num_servers());
      for (Key rank = 0; rank < servers; ++rank) {
        const bool is_last = rank + 1 == servers;
        ranges_.emplace_back(kMaxKey / servers * rank, is_last ? kMaxKey : kMaxKey / servers * (rank + 1));
      }
    }
    return ranges_;
  }

  static int WorkerRankToID(int rank) { return rank * 2 + 9; }
  static int ServerRankToID(int rank) { return rank * 2 + 8; }
  static int IDtoRank(int id) { return std::max((id - 8) / 2, 0); }
  int num_workers() const { return libra_node_workers(handle().get()); }
  int num_servers() const { return libra_node_servers(handle().get()); }
  int my_rank() const { return IDtoRank(my_id()); }
  /* Not in ps-lite, where it is van()->my_node().id. */
  int my_id() const { return libra_node_id(handle().get()); }
  int is_worker() const { return Is(LIBRA_ROLE_WORKER); }
  int is_server() const { return Is(LIBRA_ROLE_SERVER); }
  int is_scheduler() const { return Is(LIBRA_ROLE_SCHEDULER); }
  int verbose() const { return GetEnv("PS_VERBOSE", 0); }
  /* Nodes are never replaced. */
  bool is_recovery() const { return false; }

  /* The handle for C. Throws before Start. */
  std::shared_ptr<libra_node> node() const {
    const std::shared_ptr<libra_node> opened = handle();
    if (!opened) throw dmlc::Error("call ps::Start first");
    return opened;
  }

  void AddSetUp(SetUp* set_up) {
    std::lock_guard<std::mutex> lock(mutex_);
    set_ups_.insert(set_up);
  }
  void RemoveSetUp(SetUp* set_up) {
    std::lock_guard<std::mutex> lock(mutex_);
    set_ups_.erase(set_up);
  }

 private:
  Postoffice() {}
  DISALLOW_COPY_AND_ASSIGN(Postoffice);

  std::shared_ptr<libra_node> Open() {
    // Several customers may start at the same time, and the first opens the node for all.
    std::lock_guard<std::mutex> starting(start_mutex_);
    std::shared_ptr<libra_node> opened = handle();
    if (opened) return opened;
    for (const auto& variable : Environment::Get()->variables()) {
      Require(libra_environment_set(variable.first.c_str(), variable.second.c_str()));
    }
    libra_node* node = nullptr;
    Require(libra_node_open(&node));
    opened.reset(node, libra_node_free);
    std::lock_guard<std::mutex> lock(handle_mutex_);
    handle_ = opened;
    role_ = libra_node_role(node);
    has_role_ = true;
    return opened;
  }

  void Close() {
    const std::shared_ptr<libra_node> opened = node();
    Require(libra_node_close(opened.get()));
    {
      std::lock_guard<std::mutex> lock(handle_mutex_);
      handle_.reset();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    node_ids_.clear();
    ranges_.clear();
  }

  std::vector<SetUp*> Waiting() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::vector<SetUp*>(set_ups_.begin(), set_ups_.end());
  }

  static void Failed(void* context, const char* message) {
    Postoffice* const postoffice = static_cast<Postoffice*>(context);
    std::function<void(const std::string&)> callback;
    {
      std::lock_guard<std::mutex> lock(postoffice->mutex_);
      callback = postoffice->failure_callback_;
    }
    try {
      if (callback) callback(message);
    } catch (const std::exception& error) {
      LOG(ERROR) << "a failure callback threw: " << error.what();
    } catch (...) {
      LOG(ERROR) << "a failure callback threw something that is no std::exception";
    }
  }

  std::shared_ptr<libra_node> handle() const {
    std::lock_guard<std::mutex> lock(handle_mutex_);
    return handle_;
  }

  bool Is(libra_role role) const {
    std::lock_guard<std::mutex> lock(handle_mutex_);
    return has_role_ && role_ == role;
  }

  mutable std::mutex handle_mutex_;
  std::shared_ptr<libra_node> handle_;
  /* The role with which this process was started; valid after Finalize, too. */
  libra_role role_ = LIBRA_ROLE_SCHEDULER;
  bool has_role_ = false;

  std::mutex start_mutex_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<int, std::vector<int>> node_ids_;
  std::vector<Range> ranges_;
  std::set<SetUp*> set_ups_;
  Callback exit_callback_;
  std::function<void(const std::string&)> failure_callback_;
};

#define PS_VLOG(level) LOG_IF(INFO, (level) <= ::ps::Postoffice::Get()->verbose())

}  // namespace ps

#endif  // PS_INTERNAL_POSTOFFICE_H_
