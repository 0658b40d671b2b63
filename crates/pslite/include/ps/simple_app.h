/* Requests and responses of a number and a text. */
#ifndef PS_SIMPLE_APP_H_
#define PS_SIMPLE_APP_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ps/internal/customer.h"

namespace ps {

/* A request or response that has come. */
struct SimpleData {
  int head;
  std::string body;
  int sender;
  int timestamp;
  int customer_id;
};

class SimpleApp : private SetUp {
 public:
  explicit SimpleApp(int app_id, int customer_id) : SimpleApp() {
    obj_ = new Customer(app_id, customer_id, [this](const Message& message) { Process(message); });
  }
  virtual ~SimpleApp() { CloseCustomer(); }

  /* Sends a request to a node, or to all of a group. Returns a number for Wait. */
  virtual inline int Request(int head, const std::string& body, int receiver) {
    Message message;
    message.meta.head = head;
    message.meta.body = body;
    message.meta.timestamp = obj_->NewRequest(receiver);
    message.meta.request = true;
    message.meta.simple_app = true;
    message.meta.app_id = obj_->app_id();
    message.meta.customer_id = obj_->customer_id();
    for (int node : Postoffice::Get()->GetNodeIDs(receiver)) {
      message.meta.recver = node;
      obj_->Send(message);
    }
    return message.meta.timestamp;
  }

  virtual inline void Wait(int timestamp) { obj_->WaitRequest(timestamp); }

  virtual inline void Response(const SimpleData& request, const std::string& body = "") {
    Message message;
    message.meta.head = request.head;
    message.meta.body = body;
    message.meta.timestamp = request.timestamp;
    message.meta.simple_app = true;
    message.meta.app_id = obj_->app_id();
    message.meta.customer_id = request.customer_id;
    message.meta.recver = request.sender;
    obj_->Send(message);
  }

  using Handle = std::function<void(const SimpleData& received, SimpleApp* app)>;

  virtual inline void set_request_handle(const Handle& handle) {
    CHECK(handle) << "invalid request handle";
    std::lock_guard<std::mutex> lock(handle_mutex_);
    request_handle_ = std::make_shared<Handle>(handle);
    is_set_up_ = true;
    set_up_.notify_all();
  }

  virtual inline void set_response_handle(const Handle& handle) {
    CHECK(handle) << "invalid response handle";
    std::lock_guard<std::mutex> lock(handle_mutex_);
    response_handle_ = std::make_shared<Handle>(handle);
  }

  virtual inline Customer* get_customer() { return obj_; }

 protected:
  inline SimpleApp() : obj_(nullptr) {
    request_handle_ =
        std::make_shared<Handle>([](const SimpleData& received, SimpleApp* app) { app->Response(received); });
    response_handle_ = std::make_shared<Handle>([](const SimpleData&, SimpleApp*) {});
    Postoffice::Get()->AddSetUp(this);
  }

  virtual inline void Process(const Message& message) {
    SimpleData received;
    received.head = message.meta.head;
    received.body = message.meta.body;
    received.sender = message.meta.sender;
    received.timestamp = message.meta.timestamp;
    received.customer_id = message.meta.customer_id;
    // Not a copy of it: handlers may have a state.
    const std::shared_ptr<Handle> handle = message.meta.request ? RequestHandle() : ResponseHandle();
    if (!message.meta.refused) (*handle)(received, this);
  }

  /* Derived classes call it first in their destructors: from then on none of their members is used by another thread. */
  void CloseCustomer() {
    Postoffice::Get()->RemoveSetUp(this);
    IsOver();
    delete obj_;
    obj_ = nullptr;
  }

  /* No handler will be set any more, or it comes too late for requests that wait. */
  void IsOver() override {
    std::lock_guard<std::mutex> lock(handle_mutex_);
    is_set_up_ = true;
    set_up_.notify_all();
  }

  Customer* obj_;

 private:
  /* A request may come between the constructor and set_request_handle, and is for the handler that is set then. Without one it is answered
     after a while as usual. */
  std::shared_ptr<Handle> RequestHandle() {
    std::unique_lock<std::mutex> lock(handle_mutex_);
    set_up_.wait_for(lock, std::chrono::seconds(2), [this] { return is_set_up_; });
    is_set_up_ = true;
    return request_handle_;
  }

  std::shared_ptr<Handle> ResponseHandle() {
    std::lock_guard<std::mutex> lock(handle_mutex_);
    return response_handle_;
  }

  DISALLOW_COPY_AND_ASSIGN(SimpleApp);

  std::mutex handle_mutex_;
  std::condition_variable set_up_;
  bool is_set_up_ = false;
  std::shared_ptr<Handle> request_handle_;
  std::shared_ptr<Handle> response_handle_;
};

}  // namespace ps

#endif  // PS_SIMPLE_APP_H_
