// Arrays of many megabytes that are read here and there.
#pragma once
#include <cstdint>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace undirected {

// Makes room for so many entries, in large pages where the system has them, so that finding a place does not cost more than reading it.
template <class T>
void resize_large(std::vector<T>& values, std::size_t n) {
    values = std::vector<T>();
    values.reserve(n);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const std::uintptr_t page = 4096, from = (reinterpret_cast<std::uintptr_t>(values.data()) + page - 1) / page * page;
    const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(values.data() + n) / page * page;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);  // if that is refused, nothing is lost
#endif
    values.resize(n);
}

}  // namespace undirected
