/* Libra for C: processes of a parameter server, and messages between them.
 *
 * Generated from crates/pslite/src/ffi; do not edit, run `cargo xtask header`. How the parts fit is in docs/operating/pslite.md, which is about the API
 * for C++ in ps/ps.h, and applies here as well.
 *
 * All functions may be called from any thread. Handles are pointers to what this library made; text ends with a zero unless there is a
 * length beside it. Arguments of a callback live until it returns. After a status other than LIBRA_STATUS_OK there is one line for a
 * person in libra_last_error().
 */

#ifndef LIBRA_H
#define LIBRA_H

#include <stddef.h>
#include <stdint.h>

/*
 A message has this flag if it is a request, and not a response.
 */
#define LIBRA_FLAG_REQUEST 1

/*
 It brings values.
 */
#define LIBRA_FLAG_PUSH 2

/*
 It asks for values.
 */
#define LIBRA_FLAG_PULL 4

/*
 It has a text, and no arrays.
 */
#define LIBRA_FLAG_SIMPLE 8

/*
 It is the response to a request that could not be served; the text has the reason.
 */
#define LIBRA_FLAG_REFUSED 16

/*
 Result of a call.
 */
typedef enum libra_status {
  /*
   Well.
   */
  LIBRA_STATUS_OK = 0,
  /*
   An argument, or a variable of the environment, is invalid.
   */
  LIBRA_STATUS_INVALID = 1,
  /*
   Another process has died. Nothing of this node goes on; the message names it.
   */
  LIBRA_STATUS_DIED = 2,
  /*
   Another process has finalized, and does not answer any more.
   */
  LIBRA_STATUS_LEFT = 3,
  /*
   A server refused a request, or the scheduler has no place for this process.
   */
  LIBRA_STATUS_REFUSED = 4,
  /*
   There is no such node, group, customer or request.
   */
  LIBRA_STATUS_UNKNOWN = 5,
  /*
   The machine: a port, a thread, a connection that cannot be had.
   */
  LIBRA_STATUS_SYSTEM = 6,
  /*
   A bug of this library.
   */
  LIBRA_STATUS_PANICKED = 7,
} libra_status;

/*
 Role of a process.
 */
typedef enum libra_role {
  /*
   Numbers all nodes, and holds the barriers.
   */
  LIBRA_ROLE_SCHEDULER = 0,
  /*
   Answers requests of workers.
   */
  LIBRA_ROLE_SERVER = 1,
  /*
   Makes requests.
   */
  LIBRA_ROLE_WORKER = 2,
} libra_role;

/*
 A message that has come. Its arrays live as long as it does.
 */
typedef struct libra_buffer libra_buffer;

/*
 One customer of an application: requests of its own, and a thread that handles messages for it, in order.
 */
typedef struct libra_customer libra_customer;

/*
 A process of a cluster: the scheduler, a server or a worker.
 */
typedef struct libra_node libra_node;

/*
 A message. One that is handed to a callback lives until that returns; to keep its arrays, keep its buffer.
 */
typedef struct libra_message {
  /*
   The node that sent it.
   */
  int32_t sender;
  /*
   The application that it is for.
   */
  int32_t app;
  /*
   Customer that made the request, in the process of the worker.
   */
  int32_t customer;
  /*
   Number of the request among those of that customer.
   */
  int32_t timestamp;
  /*
   A command, or whatever the application likes.
   */
  int32_t head;
  /*
   Messages with a higher one are handled first, those with the same one in order.
   */
  int32_t priority;
  /*
   Type of the values: a number of the application's, and 9 for float.
   */
  uint32_t value_type;
  /*
   LIBRA_FLAG_REQUEST and others.
   */
  uint32_t flags;
  /*
   A text, not ended by a zero.
   */
  const char *text;
  /*
   Its length.
   */
  size_t text_bytes;
  /*
   Keys.
   */
  const uint64_t *keys;
  /*
   Number of keys.
   */
  size_t key_count;
  /*
   Values.
   */
  const void *values;
  /*
   Number of bytes of the values.
   */
  size_t value_bytes;
  /*
   Number of values of each key, or nothing if all have as many.
   */
  const int32_t *lengths;
  /*
   Number of keys that have a length.
   */
  size_t length_count;
  /*
   Holds the arrays of a message that has come; null in one that is to be sent.
   */
  const struct libra_buffer *buffer;
} libra_message;

/*
 Called with every message, from the thread of the customer: the next one waits until it returns. A response counts for
 libra_customer_wait once it has returned. It must not throw or jump.
 */
typedef void (*libra_message_callback)(void *context, const struct libra_message *message);

/*
 Called once when the arrays of a message that was sent are not needed any more, from any thread. It must not call this library.
 */
typedef void (*libra_release)(void *owner);

/*
 Called when another process has died: `message` names it, and lives until the callback returns.
 */
typedef void (*libra_failure_callback)(void *context, const char *message);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Makes a customer. Workers may have several of one application; elsewhere the one whose number is that of the application gets all its
 messages. Earlier messages are not lost. If `held` is not 0, nothing is handled before libra_customer_release or libra_customer_serve_sums.
 */
enum libra_status libra_customer_open(const struct libra_node *node,
                                      int32_t app,
                                      int32_t number,
                                      libra_message_callback callback,
                                      void *context,
                                      int32_t held,
                                      struct libra_customer **customer);

/*
 Handles messages that have come, and everything from now on.
 */
enum libra_status libra_customer_release(const struct libra_customer *customer);

/*
 Has the library answer requests with keys, in place of the callback: each key has a sum of all floats that were pushed to it. They begin with
 `count` values; all others with zero. Ignored the second time.
 */
enum libra_status libra_customer_serve_sums(const struct libra_customer *customer,
                                            const uint64_t *keys,
                                            const float *values,
                                            size_t count);

/*
 Handles messages that have come, stops, and frees the customer. No callback is running any more when it returns, unless it was called from one.
 Null is ignored.
 */
void libra_customer_close(struct libra_customer *customer);

/*
 Numbers a request to which `answers` nodes will respond.
 */
enum libra_status libra_customer_begin(const struct libra_customer *customer,
                                       size_t answers,
                                       int32_t *timestamp);

/*
 Waits until a request has all its responses, and their callbacks have returned. Not LIBRA_STATUS_OK if a server has refused it, or
 a process has died.
 */
enum libra_status libra_customer_wait(const struct libra_customer *customer,
                                      int32_t timestamp);

/*
 The number of responses to a request that have been handled.
 */
size_t libra_customer_answers(const struct libra_customer *customer, int32_t timestamp);

/*
 Counts responses that no node will send.
 */
enum libra_status libra_customer_add_answers(const struct libra_customer *customer,
                                             int32_t timestamp,
                                             size_t count);

/*
 Sends a message to a node: a request, or the response to one. It arrives once, and after all that this process has sent to that node before.
 Without `release` its arrays are copied; otherwise they must not change until `release(owner)` was called, which happens once, even if
 the call does not end well. If a request of this customer cannot be sent, the wait for it ends, too. `sender` and `buffer` of the message
 are ignored.
 */
enum libra_status libra_send(const struct libra_customer *customer,
                             int32_t recipient,
                             const struct libra_message *message,
                             libra_release release,
                             void *owner);

/*
 Keeps the arrays of a message alive until as many calls of libra_buffer_release. Returns the buffer to release.
 */
const struct libra_buffer *libra_buffer_retain(const struct libra_buffer *buffer);

/*
 The arrays of a message are not needed any more.
 */
void libra_buffer_release(const struct libra_buffer *buffer);

/*
 Sets a variable for this library alone; it goes before the one of the process. For libra_node_open, which reads them.
 */
enum libra_status libra_environment_set(const char *name,
                                        const char *value);

/*
 Opens the node of this process, with the role of DMLC_ROLE and the other variables, and calls the scheduler.
 */
enum libra_status libra_node_open(struct libra_node **node);

/*
 Takes a place, and waits until all processes have one and, if the scheduler has a plan, a switch is there. Each further customer of a worker that takes part in barriers calls it, too.
 */
enum libra_status libra_node_join(const struct libra_node *node);

/*
 Waits until all nodes of a group have called this.
 */
enum libra_status libra_node_barrier(const struct libra_node *node, int32_t group);

/*
 Lets handlers finish messages that have come, takes leave of all processes, and ends all connections. The handle stays, for customers to be
 closed.
 */
enum libra_status libra_node_close(const struct libra_node *node);

/*
 Frees a node that was closed, and whose customers are freed. Null is ignored.
 */
void libra_node_free(struct libra_node *node);

/*
 The role of this process; a scheduler if `node` is null.
 */
enum libra_role libra_node_role(const struct libra_node *node);

/*
 The number of this node: 1 for the scheduler, 8, 10, 12, .. for servers, 9, 11, 13, .. for workers; 0 before it has joined.
 */
int32_t libra_node_id(const struct libra_node *node);

/*
 The number of workers.
 */
int32_t libra_node_workers(const struct libra_node *node);

/*
 The number of servers.
 */
int32_t libra_node_servers(const struct libra_node *node);

/*
 The nodes of a group: 1 for the scheduler, 2 for servers, 4 for workers, or a sum of these; or one node by itself. `count` is their
 number, even if `room` is not enough for them.
 */
enum libra_status libra_node_ids(const struct libra_node *node,
                                 int32_t group,
                                 int32_t *ids,
                                 size_t room,
                                 size_t *count);

/*
 The nodes that have died, or that were silent for so many seconds: of all at the scheduler, of the scheduler elsewhere.
 */
enum libra_status libra_node_dead(const struct libra_node *node,
                                  uint32_t seconds,
                                  int32_t *ids,
                                  size_t room,
                                  size_t *count);

/*
 LIBRA_STATUS_OK as long as no process has died.
 */
enum libra_status libra_node_failure(const struct libra_node *node);

/*
 Has a callback called once if a process dies, from a thread of the library; if one has died already, before this returns. Calls that
 wait return the error anyway; this is for code that waits for something else.
 */
enum libra_status libra_node_on_failure(const struct libra_node *node,
                                        libra_failure_callback callback,
                                        void *context);

/*
 The message of the last call of this thread that did not end well: one line, without an end of line. Valid until the next call
 of this thread that does not end well.
 */
const char *libra_last_error(void);

/*
 The version of this library, such as "0.1.0".
 */
const char *libra_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIBRA_H */
