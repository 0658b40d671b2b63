/* An array that several may hold: copies of it are the same memory. */
#ifndef PS_SARRAY_H_
#define PS_SARRAY_H_

#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "ps/internal/utils.h"
#include "ps/range.h"

namespace ps {

/* V is a type that may be copied byte by byte. Assigning, converting and slicing copy no values; resize does if there is no room. */
template <typename V>
class SArray {
 public:
  SArray() {}
  explicit SArray(size_t size, V value = 0) { resize(size, value); }

  /* The same memory as that of an array of another type. */
  template <typename W>
  explicit SArray(const SArray<W>& other) {
    *this = other;
  }
  template <typename W>
  void operator=(const SArray<W>& other) {
    const size_t bytes = other.size() * sizeof(W);
    CHECK_EQ(bytes % sizeof(V), 0u) << "an array of " << bytes << " bytes cannot be divided by " << sizeof(V);
    memory_ = std::shared_ptr<V>(other.ptr(), reinterpret_cast<V*>(other.data()));
    size_ = bytes / sizeof(V);
    capacity_ = other.capacity() * sizeof(W) / sizeof(V);
  }

  /* Memory of the caller, freed with delete [] if it is deletable. */
  SArray(V* data, size_t size, bool deletable = false) {
    if (deletable) {
      reset(data, size, [](V* memory) { delete[] memory; });
    } else {
      reset(data, size, [](V*) {});
    }
  }

  /* A copy. */
  explicit SArray(const std::vector<V>& values) { CopyFrom(values.data(), values.size()); }

  /* The memory of the vector. */
  explicit SArray(const std::shared_ptr<std::vector<V>>& values)
      : size_(values->size()), capacity_(values->size()), memory_(values, values->data()) {}

  template <typename W>
  SArray(const std::initializer_list<W>& values) {
    CopyFrom(values.begin(), values.end());
  }
  template <typename W>
  void operator=(const std::initializer_list<W>& values) {
    CopyFrom(values.begin(), values.end());
  }

  void CopyFrom(const V* data, size_t size) {
    clear();
    allocate(size);
    if (size > 0) memcpy(memory_.get(), data, size * sizeof(V));
    size_ = size;
  }
  void CopyFrom(const SArray<V>& other) {
    if (this != &other) CopyFrom(other.data(), other.size());
  }
  template <typename ForwardIterator>
  void CopyFrom(const ForwardIterator& first, const ForwardIterator& last) {
    clear();
    const size_t size = static_cast<size_t>(std::distance(first, last));
    allocate(size);
    std::copy(first, last, memory_.get());
    size_ = size;
  }

  /* Other memory, and a function to call when it is held no more. */
  template <typename Deleter>
  void reset(V* data, size_t size, Deleter deleter) {
    memory_.reset(data, deleter);
    size_ = size;
    capacity_ = size;
  }

  void resize(size_t size, V value = 0) {
    if (size > capacity_) grow(size);
    if (size > size_) std::fill(memory_.get() + size_, memory_.get() + size, value);
    size_ = size;
  }
  void reserve(size_t size) {
    if (size > capacity_) grow(size);
  }
  void clear() {
    memory_.reset();
    size_ = 0;
    capacity_ = 0;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  V* data() const { return memory_.get(); }
  V* begin() { return data(); }
  const V* begin() const { return data(); }
  V* end() { return data() + size_; }
  const V* end() const { return data() + size_; }
  std::shared_ptr<V>& ptr() { return memory_; }
  const std::shared_ptr<V>& ptr() const { return memory_; }
  V front() const {
    CHECK(!empty());
    return data()[0];
  }
  V back() const {
    CHECK(!empty());
    return data()[size_ - 1];
  }
  V& operator[](size_t at) { return data()[at]; }
  const V& operator[](size_t at) const { return data()[at]; }

  void push_back(const V& value) {
    const V copy = value;
    if (size_ == capacity_) grow(2 * size_ + 5);
    data()[size_++] = copy;
  }
  void pop_back() {
    if (size_ > 0) --size_;
  }
  void append(const SArray<V>& other) {
    if (other.empty()) return;
    const SArray<V> same = other;
    const size_t before = size_;
    if (before + same.size() > capacity_) grow(before + same.size());
    memcpy(data() + before, same.data(), same.size() * sizeof(V));
    size_ = before + same.size();
  }

  /* The values from begin to before end: the same memory. */
  SArray<V> segment(size_t begin, size_t end) const {
    CHECK_GE(end, begin);
    CHECK_LE(end, size_);
    SArray<V> part;
    part.memory_ = std::shared_ptr<V>(memory_, data() + begin);
    part.size_ = end - begin;
    part.capacity_ = end - begin;
    return part;
  }

 private:
  void allocate(size_t size) {
    if (size == 0) return;
    memory_.reset(new V[size], [](V* memory) { delete[] memory; });
    capacity_ = size;
  }
  void grow(size_t capacity) {
    const std::shared_ptr<V> before = memory_;
    allocate(capacity);
    if (size_ > 0) memcpy(memory_.get(), before.get(), size_ * sizeof(V));
  }

  size_t size_ = 0;
  size_t capacity_ = 0;
  std::shared_ptr<V> memory_;
};

/* The places of an ascending array that hold values from lower to before upper. */
template <typename V>
Range FindRange(const SArray<V>& values, V lower, V upper) {
  if (upper <= lower) return Range(0, 0);
  const V* first = std::lower_bound(values.begin(), values.end(), lower);
  const V* last = std::lower_bound(values.begin(), values.end(), upper);
  return Range(static_cast<uint64_t>(first - values.begin()), static_cast<uint64_t>(last - values.begin()));
}

/* The first and last values of an array. */
template <typename V>
inline std::string DebugStr(const V* data, int count, int shown = 5) {
  std::ostringstream text;
  text << '[' << count << "]: ";
  for (int at = 0; at < count; ++at) {
    if (count >= 2 * shown && at == shown) {
      text << "... ";
      at = count - shown;
    }
    text << data[at] << ' ';
  }
  return text.str();
}

template <typename V>
std::ostream& operator<<(std::ostream& stream, const SArray<V>& values) {
  return stream << DebugStr(values.data(), static_cast<int>(values.size()));
}

}  // namespace ps

#endif  // PS_SARRAY_H_
