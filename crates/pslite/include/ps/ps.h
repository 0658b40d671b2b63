/* The API of ps-lite, on top of Libra. Its functions, and their differences: docs/operating/pslite.md. */
#ifndef PS_PS_H_
#define PS_PS_H_

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "ps/base.h"
#include "ps/kv_app.h"
#include "ps/simple_app.h"

namespace ps {

inline int NumWorkers() { return Postoffice::Get()->num_workers(); }
inline int NumServers() { return Postoffice::Get()->num_servers(); }
inline bool IsWorker() { return Postoffice::Get()->is_worker() != 0; }
inline bool IsServer() { return Postoffice::Get()->is_server() != 0; }
inline bool IsScheduler() { return Postoffice::Get()->is_scheduler() != 0; }
inline int MyRank() { return Postoffice::Get()->my_rank(); }

/* Starts this process, and waits until all have started. */
inline void Start(int customer_id, const char* argv0 = nullptr) { Postoffice::Get()->Start(customer_id, argv0, true); }

/* The same without a barrier at the end. */
inline void StartAsync(int customer_id, const char* argv0 = nullptr) {
  Postoffice::Get()->Start(customer_id, argv0, false);
}

/* Ends this process' part. With a barrier it waits until all have come here. */
inline void Finalize(int customer_id, const bool do_barrier = true) {
  Postoffice::Get()->Finalize(customer_id, do_barrier);
}

/* Called at the end of Finalize. */
inline void RegisterExitCallback(const std::function<void()>& callback) {
  Postoffice::Get()->RegisterExitCallback(callback);
}

}  // namespace ps

#endif  // PS_PS_H_
