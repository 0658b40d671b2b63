/* Requests of an application in this process, and the messages for it. */
#ifndef PS_INTERNAL_CUSTOMER_H_
#define PS_INTERNAL_CUSTOMER_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ps/internal/message.h"
#include "ps/internal/postoffice.h"

namespace ps {

class Customer {
 public:
  /* Called for each message, in order, from a thread of the customer's own. */
  using RecvHandle = std::function<void(const Message& received)>;

  /* If it is held, nothing is handled before Release or ServeSums. */
  Customer(int app_id, int customer_id, const RecvHandle& handle, bool held = false)
      : app_id_(app_id), customer_id_(customer_id), handle_(handle), node_(Postoffice::Get()->node()) {
    Require(libra_customer_open(node_.get(), app_id, customer_id, &Customer::Receive, this, held ? 1 : 0, &customer_));
  }
  ~Customer() { libra_customer_close(customer_); }

  int app_id() const { return app_id_; }
  int customer_id() const { return customer_id_; }

  /* Numbers a request that all nodes of a group will answer. */
  int NewRequest(int receiver) {
    int timestamp = 0;
    Require(libra_customer_begin(customer_, Postoffice::Get()->GetNodeIDs(receiver).size(), &timestamp));
    return timestamp;
  }

  /* Waits for all answers. Throws if a server has refused the request, a callback threw, or a process has died. */
  void WaitRequest(int timestamp) {
    Require(libra_customer_wait(customer_, timestamp));
    std::string problem;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = problems_.find(timestamp);
      if (found == problems_.end()) return;
      problem = found->second;
      problems_.erase(found);
    }
    throw dmlc::Error(problem);
  }

  int NumResponse(int timestamp) { return static_cast<int>(libra_customer_answers(customer_, timestamp)); }

  void AddResponse(int timestamp, int count = 1) {
    Require(libra_customer_add_answers(customer_, timestamp, static_cast<size_t>(count)));
  }

  void Release() { Require(libra_customer_release(customer_)); }

  void ServeSums(const Key* keys, const float* values, size_t count) {
    Require(libra_customer_serve_sums(customer_, keys, values, count));
  }

  /* Sends a message. Its arrays are sent from where they are, and held until that is done. If the recipient has died or finalized, the wait
     for a request reports it, and an answer is dropped: nothing is thrown, as handlers send from threads of their own. */
  void Send(const Message& message) {
    libra_message to = libra_message();
    const Meta& meta = message.meta;
    to.app = meta.app_id;
    to.customer = meta.customer_id;
    to.timestamp = meta.timestamp;
    to.head = meta.head;
    to.priority = meta.priority;
    to.value_type = static_cast<uint32_t>(meta.value_type);
    to.flags = (meta.request ? LIBRA_FLAG_REQUEST : 0u) | (meta.push ? LIBRA_FLAG_PUSH : 0u) |
               (meta.pull ? LIBRA_FLAG_PULL : 0u) | (meta.simple_app ? LIBRA_FLAG_SIMPLE : 0u) |
               (meta.refused ? LIBRA_FLAG_REFUSED : 0u);
    to.text = meta.body.data();
    to.text_bytes = meta.body.size();
    if (message.keys.empty() && message.vals.empty()) {
      RequireSent(libra_send(customer_, meta.recver, &to, nullptr, nullptr));
      return;
    }
    std::unique_ptr<Message> held(new Message(message));
    to.keys = held->keys.data();
    to.key_count = held->keys.size();
    to.values = held->vals.data();
    to.value_bytes = held->vals.size();
    to.lengths = held->lens.data();
    to.length_count = held->lens.size();
    RequireSent(libra_send(customer_, meta.recver, &to, &Customer::Sent, held.release()));
  }

 private:
  DISALLOW_COPY_AND_ASSIGN(Customer);

  static void RequireSent(libra_status status) {
    if (status != LIBRA_STATUS_DIED && status != LIBRA_STATUS_LEFT) Require(status);
  }

  static void Sent(void* owner) { delete static_cast<Message*>(owner); }

  /* Nothing is thrown through C. The wait for the request gets the problem. */
  static void Receive(void* context, const libra_message* from) {
    Customer* const self = static_cast<Customer*>(context);
    std::string problem;
    try {
      self->handle_(FromC(*from));
      return;
    } catch (const std::exception& error) {
      problem = error.what();
    } catch (...) {
      problem = "something was thrown that is no std::exception";
    }
    // After a death no request can be answered, and all processes have been told.
    if (libra_node_failure(self->node_.get()) != LIBRA_STATUS_OK) return;
    LOG(ERROR) << "a handler of application " << self->app_id_ << " threw: " << problem;
    try {
      self->Answer(*from, problem);
    } catch (const std::exception& error) {
      LOG(ERROR) << "the error could not be sent: " << error.what();
    }
  }

  void Answer(const libra_message& from, const std::string& problem) {
    if ((from.flags & LIBRA_FLAG_REQUEST) == 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      problems_[from.timestamp] = problem;
      return;
    }
    Message response;
    response.meta.app_id = from.app;
    response.meta.customer_id = from.customer;
    response.meta.timestamp = from.timestamp;
    response.meta.head = from.head;
    response.meta.recver = from.sender;
    response.meta.simple_app = (from.flags & LIBRA_FLAG_SIMPLE) != 0;
    response.meta.refused = true;
    response.meta.body = problem;
    Send(response);
  }

  const int app_id_;
  const int customer_id_;
  const RecvHandle handle_;
  /* Outlives the customer. */
  const std::shared_ptr<libra_node> node_;
  libra_customer* customer_ = nullptr;
  std::mutex mutex_;
  std::map<int, std::string> problems_;
};

}  // namespace ps

#endif  // PS_INTERNAL_CUSTOMER_H_
