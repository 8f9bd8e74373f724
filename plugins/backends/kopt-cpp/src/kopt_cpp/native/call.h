// What a sanitized program needs around the kernel: tensors in memory of exactly their size.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" void __asan_poison_memory_region(const volatile void*, size_t) __attribute__((weak));

namespace {

constexpr size_t ALIGNMENT = 64;

[[noreturn]] void give_up(const char* what) {
    std::perror(what);
    std::_Exit(3);
}

// Bytes on the heap; as far from a multiple of ALIGNMENT as those that the kernel gets elsewhere.
class Tensor {
public:
    Tensor(const char* file, size_t bytes, size_t shift) : file_(file), bytes_(bytes) {
        void* memory = nullptr;
        if (posix_memalign(&memory, ALIGNMENT, bytes + shift + !bytes)) give_up("memory");
        memory_ = static_cast<unsigned char*>(memory);
        data = memory_ + shift;
        if (__asan_poison_memory_region) __asan_poison_memory_region(memory_, shift + !bytes);
    }
    void read() {
        if (!bytes_) return;
        std::FILE* file = std::fopen(file_, "rb");
        if (!file || std::fread(data, 1, bytes_, file) != bytes_) give_up(file_);
        std::fclose(file);
    }
    void release() { std::free(memory_); }
    unsigned char* data;

private:
    const char* file_;
    size_t bytes_;
    unsigned char* memory_;
};

double number(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// What the program has to say at its end; its file is gone before the kernel runs.
class Token {
public:
    explicit Token(const char* path) {
        std::FILE* file = std::fopen(path, "r");
        if (!file || !std::fgets(text_, sizeof text_, file)) give_up(path);
        std::fclose(file);
        std::remove(path);
    }
    void say(const char* path) const {
        std::FILE* file = std::fopen(path, "w");
        if (!file || std::fputs(text_, file) < 0 || std::fclose(file)) give_up(path);
    }

private:
    char text_[64] = {};
};

}  // namespace
