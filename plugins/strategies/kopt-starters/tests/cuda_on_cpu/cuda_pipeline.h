// Asynchronous copies: each is done when its thread waits for it, and not before.
#pragma once
#include "cuda_on_cpu.h"

#include <deque>
#include <map>

namespace kopt_on_cpu {
struct Copy {
    void *to;
    const void *from;
    size_t bytes;
};
struct Copies {
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
};
inline std::map<unsigned, Copies> copies;
}  // namespace kopt_on_cpu

inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes) {
    const auto places = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (places % bytes || (bytes != 4 && bytes != 8 && bytes != 16)) {
        std::fprintf(stderr, "an asynchronous copy of %zu bytes is not aligned\n", bytes);
        std::abort();
    }
    kopt_on_cpu::copies[kopt_on_cpu::running->number].open.push_back({to, from, bytes});
}
inline void __pipeline_commit() {
    auto &mine = kopt_on_cpu::copies[kopt_on_cpu::running->number];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}
inline void __pipeline_wait_prior(size_t pending) {
    auto &mine = kopt_on_cpu::copies[kopt_on_cpu::running->number];
    for (; mine.groups.size() > pending; mine.groups.pop_front())
        for (const auto &each : mine.groups.front()) std::memcpy(each.to, each.from, each.bytes);
}
