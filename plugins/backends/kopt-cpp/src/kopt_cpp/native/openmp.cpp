// A small OpenMP runtime for kernels under the thread sanitizer, which does not see how GCC's own
// runtime synchronises and would report its barriers as races.
//
// It has the entries that GCC calls for parallel regions, loops, sections, single, critical and
// atomic. Whatever else a kernel asks for (tasks, ordered, cancellation, target) does not link.
// Iterations go to the threads in turn, whatever the schedule: legal for every one of them, and no
// bookkeeping between the threads hides a race. Nested regions have one thread.
//
// It is compiled for every kernel that calls it: the C++ library's own threads and mutexes would
// take twice as long.
#include <omp.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Body = void (*)(void*);
using Unsigned = unsigned long long;
constexpr int DEFAULT_THREADS = 4, MOST_THREADS = 256;

[[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::_Exit(3);
}

class Mutex {
public:
    void lock() { pthread_mutex_lock(&mutex_); }
    void unlock() { pthread_mutex_unlock(&mutex_); }
    bool try_lock() { return !pthread_mutex_trylock(&mutex_); }

private:
    friend class Condition;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Held {
public:
    explicit Held(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
    ~Held() { mutex_.unlock(); }

private:
    Mutex& mutex_;
};

class Condition {
public:
    template <typename Test>
    void wait(Mutex& held, Test test) {
        while (!test()) pthread_cond_wait(&condition_, &held.mutex_);
    }
    void notify_all() { pthread_cond_broadcast(&condition_); }

private:
    pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

// A loop as one thread walks it: indices of iterations, in chunks of which every size-th is its own.
struct Loop {
    Unsigned first = 0, step = 1, count = 0, chunk = 1, at = 0, stride = 1;
    bool contiguous = false;  // one piece for each thread
};

class Barrier {
public:
    explicit Barrier(int size) : size_(size) {}
    void wait() {
        Held held(mutex_);
        const Unsigned turn = turn_;
        if (++arrived_ == size_) {
            arrived_ = 0;
            ++turn_;
            all_.notify_all();
        } else {
            all_.wait(mutex_, [&] { return turn_ != turn; });
        }
    }

private:
    Mutex mutex_;
    Condition all_;
    int size_, arrived_ = 0;
    Unsigned turn_ = 0;
};

struct Team {
    Team(int size, Loop loop, unsigned sections)
        : size(size), barrier(size), loop(loop), sections(sections) {}
    int size;
    Barrier barrier;
    Loop loop;          // of a region that is a loop
    unsigned sections;  // of a region that is sections
    void* copied = nullptr;
};

struct Thread {
    Team* team = nullptr;
    int number = 0;
    Loop loop;
    unsigned section = 0, sections = 0;
    Unsigned singles = 0;
};

thread_local Thread self;
thread_local int wanted_threads = DEFAULT_THREADS;

int team_size() { return self.team ? self.team->size : 1; }

void share_loop(Loop loop) {
    const Unsigned size = team_size(), number = self.number;
    if (loop.contiguous) {  // as even as can be, the first threads taking one more
        const Unsigned piece = loop.count / size, rest = loop.count % size;
        loop.at = number * piece + (number < rest ? number : rest);
        loop.chunk = piece + (number < rest);
        loop.stride = loop.count + 1;  // no second piece
        if (!loop.chunk) loop.at = loop.count;
    } else {
        loop.at = number * loop.chunk;
        loop.stride = size * loop.chunk;
    }
    self.loop = loop;
}

void enter(Team& team, int number, Body body, void* data) {
    const Thread outer = self;
    self = Thread();
    self.team = &team;
    self.number = number;
    share_loop(team.loop);
    self.section = number + 1;
    self.sections = team.sections;
    body(data);
    self = outer;
}

// One thread of a pool: it waits for work and says when it is done. What orders the two ends is
// kept apart: a starter that has gone on to wait must not seem to come before a late beginner.
class Worker {
public:
    Worker() {
        pthread_t thread;
        if (pthread_create(&thread, nullptr, run, this)) give_up("a thread could not be started");
        pthread_detach(thread);
    }
    void start(Team& team, int number, Body body, void* data) {
        Held held(begin_);
        team_ = &team, number_ = number, body_ = body, data_ = data;
        begun_.notify_all();
    }
    void finish() {
        Held held(end_);
        ended_.wait(end_, [&] { return done_; });
        done_ = false;
    }

private:
    static void* run(void* worker) {
        static_cast<Worker*>(worker)->serve();
        return nullptr;
    }
    [[noreturn]] void serve() {
        for (;;) {
            Team* team;
            {
                Held held(begin_);
                begun_.wait(begin_, [&] { return team_; });
                team = team_;
                team_ = nullptr;
            }
            enter(*team, number_, body_, data_);
            Held held(end_);
            done_ = true;
            ended_.notify_all();
        }
    }
    Mutex begin_, end_;
    Condition begun_, ended_;
    bool done_ = false;
    Team* team_ = nullptr;
    int number_ = 0;
    Body body_ = nullptr;
    void* data_ = nullptr;
};

struct Pool {
    Worker* workers[MOST_THREADS];
    int count = 0;
};

Pool& pool() {  // of the calling thread; it outlives everything
    thread_local auto* made = new Pool;
    return *made;
}

void parallel(Body body, void* data, unsigned threads, Loop loop, unsigned sections) {
    int size = threads ? static_cast<int>(threads) : wanted_threads;
    if (self.team) size = 1;
    if (size > MOST_THREADS) size = MOST_THREADS;
    Team team(size, loop, sections);
    Pool& mine = pool();
    while (mine.count < size - 1) mine.workers[mine.count++] = new Worker;
    for (int i = 1; i < size; ++i) mine.workers[i - 1]->start(team, i, body, data);
    enter(team, 0, body, data);
    for (int i = 1; i < size; ++i) mine.workers[i - 1]->finish();
}

Loop signed_loop(long start, long end, long step, long chunk, bool contiguous) {
    Loop loop;
    loop.first = start, loop.step = step;
    if (step > 0 && start < end) loop.count = ((Unsigned)end - start + step - 1) / step;
    if (step < 0 && start > end)
        loop.count = ((Unsigned)start - end + (0ULL - step) - 1) / (0ULL - step);
    loop.chunk = chunk > 0 ? chunk : 1;
    loop.contiguous = contiguous && chunk <= 0;
    return loop;
}

Loop unsigned_loop(bool up, Unsigned start, Unsigned end, Unsigned step, Unsigned chunk,
                   bool contiguous) {
    Loop loop;
    loop.first = start, loop.step = step;
    if (up && start < end) loop.count = (end - start + step - 1) / step;
    if (!up && start > end) loop.count = (start - end + (0 - step) - 1) / (0 - step);
    loop.chunk = chunk > 0 ? chunk : 1;
    loop.contiguous = contiguous && chunk == 0;
    return loop;
}

template <typename Number>
bool next(Number* start, Number* end) {
    Loop& loop = self.loop;
    if (loop.at >= loop.count) return false;
    const Unsigned left = loop.count - loop.at, some = left < loop.chunk ? left : loop.chunk;
    *start = loop.first + loop.at * loop.step;
    *end = loop.first + (loop.at + some) * loop.step;
    loop.at = left < loop.stride ? loop.count : loop.at + loop.stride;
    return true;
}

Mutex critical, atomic;

// Found without a lock of their own, which would order what is not ordered.
Mutex& named(void** name) {
    static Mutex mutexes[1024];
    return mutexes[reinterpret_cast<uintptr_t>(name) / sizeof name % 1024];
}

struct Lock {
    Mutex plain;
    pthread_mutex_t nested;
};
constexpr int MOST_LOCKS = 4096;
Lock locks[MOST_LOCKS];
int locks_made = 0;

void make_lock(void* where) {  // omp_lock_t has room for a number only
    const int number = __atomic_fetch_add(&locks_made, 1, __ATOMIC_RELAXED);
    if (number >= MOST_LOCKS) give_up("more OpenMP locks than the thread sanitizer's runtime has");
    std::memcpy(where, &number, sizeof number);
}

Lock& lock_of(void* where) {
    int number;
    std::memcpy(&number, where, sizeof number);
    return locks[number];
}

}  // namespace

extern "C" {

void GOMP_parallel(Body body, void* data, unsigned threads, unsigned) {
    parallel(body, data, threads, Loop(), 0);
}
void GOMP_parallel_sections(Body body, void* data, unsigned threads, unsigned count, unsigned) {
    parallel(body, data, threads, Loop(), count);
}
void GOMP_barrier() {
    if (self.team) self.team->barrier.wait();
}

#define LOOP(kind, contiguous)                                                                   \
    bool GOMP_loop_##kind##_start(long a, long b, long step, long chunk, long* from, long* to) { \
        share_loop(signed_loop(a, b, step, chunk, contiguous));                                  \
        return next(from, to);                                                                   \
    }                                                                                            \
    bool GOMP_loop_##kind##_next(long* from, long* to) { return next(from, to); }                \
    bool GOMP_loop_ull_##kind##_start(bool up, Unsigned a, Unsigned b, Unsigned step,            \
                                      Unsigned chunk, Unsigned* from, Unsigned* to) {            \
        share_loop(unsigned_loop(up, a, b, step, chunk, contiguous));                            \
        return next(from, to);                                                                   \
    }                                                                                            \
    bool GOMP_loop_ull_##kind##_next(Unsigned* from, Unsigned* to) { return next(from, to); }    \
    void GOMP_parallel_loop_##kind(Body body, void* data, unsigned threads, long a, long b,      \
                                   long step, long chunk, unsigned) {                            \
        parallel(body, data, threads, signed_loop(a, b, step, chunk, contiguous), 0);            \
    }
LOOP(static, true)
LOOP(dynamic, false)
LOOP(guided, false)
LOOP(nonmonotonic_dynamic, false)
LOOP(nonmonotonic_guided, false)

#define RUNTIME_LOOP(kind)                                                                        \
    bool GOMP_loop_##kind##_start(long a, long b, long step, long* from, long* to) {              \
        share_loop(signed_loop(a, b, step, 1, false));                                            \
        return next(from, to);                                                                    \
    }                                                                                             \
    bool GOMP_loop_##kind##_next(long* from, long* to) { return next(from, to); }                 \
    bool GOMP_loop_ull_##kind##_start(bool up, Unsigned a, Unsigned b, Unsigned step,             \
                                      Unsigned* from, Unsigned* to) {                             \
        share_loop(unsigned_loop(up, a, b, step, 1, false));                                      \
        return next(from, to);                                                                    \
    }                                                                                             \
    bool GOMP_loop_ull_##kind##_next(Unsigned* from, Unsigned* to) { return next(from, to); }     \
    void GOMP_parallel_loop_##kind(Body body, void* data, unsigned threads, long a, long b,       \
                                   long step, unsigned) {                                         \
        parallel(body, data, threads, signed_loop(a, b, step, 1, false), 0);                      \
    }
RUNTIME_LOOP(runtime)
RUNTIME_LOOP(nonmonotonic_runtime)
RUNTIME_LOOP(maybe_nonmonotonic_runtime)

void GOMP_loop_end() { GOMP_barrier(); }
void GOMP_loop_end_nowait() {}

static unsigned next_section() {
    const unsigned mine = self.section;
    self.section += team_size();
    return mine <= self.sections ? mine : 0;
}
unsigned GOMP_sections_start(unsigned count) {
    self.section = self.number + 1;
    self.sections = count;
    return next_section();
}
unsigned GOMP_sections_next() { return next_section(); }
void GOMP_sections_end() { GOMP_barrier(); }
void GOMP_sections_end_nowait() {}

bool GOMP_single_start() {
    return self.singles++ % team_size() == static_cast<Unsigned>(self.number);
}
void* GOMP_single_copy_start() {
    if (GOMP_single_start()) return nullptr;
    GOMP_barrier();
    return self.team->copied;
}
void GOMP_single_copy_end(void* data) {
    if (self.team) self.team->copied = data;
    GOMP_barrier();
}

void GOMP_critical_start() { critical.lock(); }
void GOMP_critical_end() { critical.unlock(); }
void GOMP_critical_name_start(void** name) { named(name).lock(); }
void GOMP_critical_name_end(void** name) { named(name).unlock(); }
void GOMP_atomic_start() { atomic.lock(); }
void GOMP_atomic_end() { atomic.unlock(); }

int omp_get_thread_num() { return self.number; }
int omp_get_num_threads() { return team_size(); }
int omp_get_max_threads() { return wanted_threads; }
void omp_set_num_threads(int threads) {
    if (threads > 0) wanted_threads = threads < MOST_THREADS ? threads : MOST_THREADS;
}
int omp_get_thread_limit() { return MOST_THREADS; }
int omp_get_num_procs() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }
int omp_in_parallel() { return team_size() > 1; }
int omp_get_level() { return self.team ? 1 : 0; }
int omp_get_active_level() { return team_size() > 1; }
int omp_get_max_active_levels() { return 1; }
void omp_set_max_active_levels(int) {}
int omp_get_dynamic() { return 0; }
void omp_set_dynamic(int) {}
int omp_get_nested() { return 0; }
void omp_set_nested(int) {}
double omp_get_wtime() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}
double omp_get_wtick() { return 1e-9; }

void omp_init_lock(omp_lock_t* lock) { make_lock(lock); }
void omp_destroy_lock(omp_lock_t*) {}
void omp_set_lock(omp_lock_t* lock) { lock_of(lock).plain.lock(); }
void omp_unset_lock(omp_lock_t* lock) { lock_of(lock).plain.unlock(); }
int omp_test_lock(omp_lock_t* lock) { return lock_of(lock).plain.try_lock(); }
void omp_init_nest_lock(omp_nest_lock_t* lock) {
    make_lock(lock);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock_of(lock).nested, &recursive);
}
void omp_destroy_nest_lock(omp_nest_lock_t*) {}
void omp_set_nest_lock(omp_nest_lock_t* lock) {
    pthread_mutex_lock(&lock_of(lock).nested);
}
void omp_unset_nest_lock(omp_nest_lock_t* lock) {
    pthread_mutex_unlock(&lock_of(lock).nested);
}

}  // extern "C"
