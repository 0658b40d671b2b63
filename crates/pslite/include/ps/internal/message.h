/* A message between nodes. */
#ifndef PS_INTERNAL_MESSAGE_H_
#define PS_INTERNAL_MESSAGE_H_

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ps/base.h"
#include "ps/sarray.h"

namespace ps {

enum DataType { CHAR, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT, DOUBLE, OTHER };

template <typename V>
DataType GetDataType() {
  return std::is_same<V, char>::value       ? CHAR
         : std::is_same<V, int8_t>::value   ? INT8
         : std::is_same<V, int16_t>::value  ? INT16
         : std::is_same<V, int32_t>::value  ? INT32
         : std::is_same<V, int64_t>::value  ? INT64
         : std::is_same<V, uint8_t>::value  ? UINT8
         : std::is_same<V, uint16_t>::value ? UINT16
         : std::is_same<V, uint32_t>::value ? UINT32
         : std::is_same<V, uint64_t>::value ? UINT64
         : std::is_same<V, float>::value    ? FLOAT
         : std::is_same<V, double>::value   ? DOUBLE
                                            : OTHER;
}

struct Meta {
  int head = 0;
  int app_id = 0;
  int customer_id = 0;
  int timestamp = 0;
  int sender = 0;
  int recver = 0;
  bool request = false;
  bool push = false;
  bool pull = false;
  bool simple_app = false;
  /* A response to a request that the server could not serve; the body has the reason. */
  bool refused = false;
  int priority = 0;
  DataType value_type = CHAR;
  std::string body;
};

struct Message {
  Meta meta;
  SArray<Key> keys;
  SArray<char> vals;
  SArray<int> lens;
};

/* A view of a message of C, for as long as one of its arrays is held. */
inline Message FromC(const libra_message& from) {
  Message message;
  Meta& meta = message.meta;
  meta.head = from.head;
  meta.app_id = from.app;
  meta.customer_id = from.customer;
  meta.timestamp = from.timestamp;
  meta.sender = from.sender;
  meta.request = (from.flags & LIBRA_FLAG_REQUEST) != 0;
  meta.push = (from.flags & LIBRA_FLAG_PUSH) != 0;
  meta.pull = (from.flags & LIBRA_FLAG_PULL) != 0;
  meta.simple_app = (from.flags & LIBRA_FLAG_SIMPLE) != 0;
  meta.refused = (from.flags & LIBRA_FLAG_REFUSED) != 0;
  meta.priority = from.priority;
  meta.value_type = static_cast<DataType>(from.value_type);
  meta.body.assign(from.text, from.text_bytes);
  if (from.key_count + from.value_bytes + from.length_count == 0) return message;
  const std::shared_ptr<const libra_buffer> buffer(libra_buffer_retain(from.buffer), libra_buffer_release);
  // Values may be changed in place by a handler: the memory is the message's own, and only handles of it are const.
  message.keys.reset(const_cast<Key*>(from.keys), from.key_count, [buffer](Key*) {});
  message.vals.reset(static_cast<char*>(const_cast<void*>(from.values)), from.value_bytes, [buffer](char*) {});
  message.lens.reset(const_cast<int*>(from.lengths), from.length_count, [buffer](int*) {});
  return message;
}

}  // namespace ps

#endif  // PS_INTERNAL_MESSAGE_H_
