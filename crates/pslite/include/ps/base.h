/* Keys, and the numbers of groups of nodes. */
#ifndef PS_BASE_H_
#define PS_BASE_H_

#include <limits>

#include "ps/internal/utils.h"

namespace ps {

#if defined(USE_KEY32) && USE_KEY32
#error "keys have 64 bits here: see docs/operating/pslite.md"
#endif
using Key = uint64_t;

static const Key kMaxKey = std::numeric_limits<Key>::max();

/* The node of the scheduler, and the group of it alone. Groups are added to name their union. */
static const int kScheduler = 1;
static const int kServerGroup = 2;
static const int kWorkerGroup = 4;

}  // namespace ps

#endif  // PS_BASE_H_
