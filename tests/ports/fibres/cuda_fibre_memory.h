// Shared memory as kernels use it under the fibres (REPRISE_SHARED, REPRISE_DYNAMIC_SHARED), and
// atomics on global memory. Every access to shared memory is checked against the shadow memory
// (cuda_fibre_shared.h). The text of a fault names the array and the thread.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/ports/fibres/cuda_fibre_device.h"

namespace reprise::fibre {

[[noreturn]] void fail_index(const char* name, uint64_t index, uint64_t count);
[[noreturn]] void fail_allocation(const char* name, uint64_t bytes);

// An element of a static array: `bytes` bytes at `offset` of the block's memory.
struct SharedElement {
  const char* array;
  uint64_t index;
  uint32_t offset, bytes;
};
void load_element(const SharedElement& element, void* value);
void store_element(const SharedElement& element, const void* value);

// The type of array that REPRISE_SHARED declares. A block allocates the array at its first access.
template <typename T, uint64_t kCount>
class SharedArray {
 public:
  explicit SharedArray(const char* name) : name_(name) {}

  class Element {
   public:
    Element(SharedArray& array, uint64_t index) : array_(array), index_(index) {}
    operator T() const { return array_.read(index_); }
    Element& operator=(const T& value) {
      array_.write(index_, value);
      return *this;
    }
    Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
    Element& operator+=(const T& value) { return *this = static_cast<T>(*this) + value; }

   private:
    SharedArray& array_;
    uint64_t index_;
  };

  Element operator[](uint64_t index) {
    Device& device = Device::instance();
    if (index >= kCount) fail_index(name_, index, kCount);
    if (block_serial_ != device.block_serial()) {
      block_serial_ = device.block_serial();
      if (!device.shared().allocate(kCount * sizeof(T), begin_)) fail_allocation(name_, kCount * sizeof(T));
    }
    return {*this, index};
  }

 private:
  T read(uint64_t index) {
    T value;
    load_element(element(index), &value);
    return value;
  }
  void write(uint64_t index, const T& value) { store_element(element(index), &value); }
  SharedElement element(uint64_t index) const {
    return {name_, index, begin_ + static_cast<uint32_t>(index * sizeof(T)), sizeof(T)};
  }

  static_assert(std::is_trivially_copyable_v<T>);
  const char* name_;
  uint64_t block_serial_ = 0;
  uint32_t begin_ = 0;
};

}  // namespace reprise::fibre

namespace reprise {

// Part of the shared memory, with the contract of SharedBytes in cuda/warp.h. Under the fibres, a
// part or an access that is not inside its parent is a fault.
class SharedBytes {
 public:
  // Returns the dynamic shared memory of the launch. `said` is the number of bytes that the kernel
  // declares; 0 if it declares none. Reports a fault if the launch has another number of bytes.
  static SharedBytes dynamic(uint32_t said = 0) {
    const uint32_t bytes = fibre::Device::instance().shared().dynamic_bytes();
    if (said != 0 && said != bytes) fail_said(said, bytes);
    return {0, bytes};
  }

  SharedBytes part(uint32_t offset, uint32_t bytes, int line = __builtin_LINE()) const {
    return {address(offset, bytes, 1, line), bytes};
  }
  template <typename T>
  T load(uint32_t offset, int line = __builtin_LINE()) const {
    check_type<T>();
    T value;
    load_bytes(&value, offset, sizeof(T), line);
    return value;
  }
  template <typename T>
  void store(uint32_t offset, const T& value, int line = __builtin_LINE()) const {
    check_type<T>();
    store_bytes(&value, offset, sizeof(T), line);
  }

  // Returns the offset in the block's memory of `bytes` bytes at `offset` in this part. Reports a
  // fault if they are outside this part or misaligned.
  uint32_t address(uint32_t offset, uint32_t bytes, uint32_t alignment, int line) const {
    const uint64_t end = uint64_t{offset} + bytes;
    if (end > bytes_ || offset % alignment != 0) [[unlikely]] fail_address(offset, bytes, alignment, line);
    return begin_ + offset;
  }

 private:
  SharedBytes(uint32_t begin, uint32_t bytes) : begin_(begin), bytes_(bytes) {}
  template <typename T>
  static void check_type() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0 &&
                  alignof(T) == sizeof(T));
  }
  [[noreturn]] static void fail_said(uint32_t said, uint32_t bytes);
  [[noreturn]] void fail_address(uint32_t offset, uint32_t bytes, uint32_t alignment, int line) const;
  void load_bytes(void* value, uint32_t offset, uint32_t bytes, int line) const;
  void store_bytes(const void* value, uint32_t offset, uint32_t bytes, int line) const;

  uint32_t begin_, bytes_;
};

}  // namespace reprise

// Atomics on global memory. They need no synchronisation, because all fibres share one host thread
// and switch only between atomics. They are not inline, so that their accesses are not announced
// like plain accesses.
template <typename T>
concept FibreAtomic = std::is_same_v<T, unsigned int> || std::is_same_v<T, unsigned long long>;
template <FibreAtomic T>
T atomicAdd(T* at, std::type_identity_t<T> value);
template <FibreAtomic T>
T atomicMin(T* at, std::type_identity_t<T> value);
template <FibreAtomic T>
T atomicMax(T* at, std::type_identity_t<T> value);
template <FibreAtomic T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value);
inline void __threadfence(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  reprise::fibre::Device::instance().fence({"__threadfence", file, line});
}
