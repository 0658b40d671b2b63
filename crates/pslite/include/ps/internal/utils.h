/* Small things that programs of ps-lite find here, and the way from a status of C to an exception. */
#ifndef PS_INTERNAL_UTILS_H_
#define PS_INTERNAL_UTILS_H_

#include <inttypes.h>
#include <stdint.h>

#include <cstdlib>
#include <string>

#include "libra.h"
#include "ps/internal/env.h"
#include "ps/internal/logging.h"

#ifndef DISALLOW_COPY_AND_ASSIGN
#define DISALLOW_COPY_AND_ASSIGN(TypeName) \
  TypeName(const TypeName&) = delete;      \
  void operator=(const TypeName&) = delete
#endif

namespace ps {

/* Another process has died or finalized. ps-lite waits forever then. */
struct PeerError : public dmlc::Error {
  explicit PeerError(const std::string& text) : dmlc::Error(text) {}
};

/* Throws the error of the library if a call did not end well. */
inline void Require(libra_status status) {
  if (status == LIBRA_STATUS_OK) return;
  const std::string text = libra_last_error();
  if (status == LIBRA_STATUS_DIED || status == LIBRA_STATUS_LEFT) throw PeerError(text);
  throw dmlc::Error(text);
}

template <typename V>
inline V GetEnv(const char* name, V usual) {
  const char* value = Environment::Get()->find(name);
  return value == nullptr ? usual : V(value);
}

inline int GetEnv(const char* name, int usual) {
  const char* value = Environment::Get()->find(name);
  return value == nullptr ? usual : std::atoi(value);
}

}  // namespace ps

#endif  // PS_INTERNAL_UTILS_H_
