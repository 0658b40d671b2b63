// Requests of the benchmarks of sparse rows: keys drawn by Zipf's law, distinct and ascending in each request.

#ifndef LIBRA_EXAMPLES_SPARSE_REQUESTS_H_
#define LIBRA_EXAMPLES_SPARSE_REQUESTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace sparse {

using Key = uint64_t;

struct Settings {
  size_t keys, keys_a_request, under_way;
  double seconds;
  bool hashed;

  // From the arguments of a program: KEYS, KEYS_A_REQUEST, SECONDS, REQUESTS_UNDER_WAY and HASHED.
  static Settings From(int argc, char** argv) {
    auto argument = [&](int at, double usual) { return argc > at ? std::atof(argv[at]) : usual; };
    return {static_cast<size_t>(argument(1, 1e7)), static_cast<size_t>(argument(2, 1e4)),
            static_cast<size_t>(argument(4, 8)), argument(3, 4), argument(5, 0) != 0};
  }
};

// The key of a row: its number, or a bijection of it (the finalizer of SplitMix64).
inline Key KeyOf(const Settings& settings, uint64_t row) {
  if (!settings.hashed) return row;
  row = (row ^ (row >> 30)) * 0xbf58476d1ce4e5b9u;
  row = (row ^ (row >> 27)) * 0x94d049bb133111ebu;
  return row ^ (row >> 31);
}

// Requests of so many distinct keys. Ranks are scattered over the keys.
inline std::vector<std::vector<Key>> Draw(const Settings& settings, size_t requests, unsigned seed) {
  std::vector<double> cumulated(settings.keys);
  double sum = 0;
  for (size_t rank = 0; rank < settings.keys; ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -1.05);
    cumulated[rank] = sum;
  }
  std::vector<Key> of_rank(settings.keys);
  for (size_t rank = 0; rank < settings.keys; ++rank) of_rank[rank] = rank;
  std::mt19937_64 random(7);
  std::shuffle(of_rank.begin(), of_rank.end(), random);
  random.seed(seed);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<std::vector<Key>> drawn;
  std::vector<bool> is_taken(settings.keys);
  for (size_t request = 0; request < requests; ++request) {
    std::vector<Key> keys;
    while (keys.size() < settings.keys_a_request) {
      const auto found = std::lower_bound(cumulated.begin(), cumulated.end(), uniform(random));
      const size_t rank = static_cast<size_t>(found - cumulated.begin());
      if (rank >= settings.keys || is_taken[rank]) continue;
      is_taken[rank] = true;
      keys.push_back(KeyOf(settings, of_rank[rank]));
    }
    std::fill(is_taken.begin(), is_taken.end(), false);
    std::sort(keys.begin(), keys.end());
    drawn.push_back(std::move(keys));
  }
  return drawn;
}

}  // namespace sparse

#endif  // LIBRA_EXAMPLES_SPARSE_REQUESTS_H_
