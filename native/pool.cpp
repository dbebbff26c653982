#include "pool.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace undirected {
namespace {

constexpr auto BETWEEN_QUESTIONS = std::chrono::milliseconds(100);
thread_local const std::function<void()>* watching = nullptr;
thread_local std::chrono::steady_clock::time_point last_asked;
thread_local bool within_job = false;

// Holds a value while this lives.
template <class T>
class Hold {
public:
    Hold(T& variable, T value) : variable_(variable), before_(variable) { variable = value; }
    ~Hold() { variable_ = before_; }

private:
    T& variable_;
    T before_;
};

// Asks whether the work of this thread should go on, unless that was asked just now. Whoever answers may come back to this thread with
// work of another kind, which is then not asked about.
void ask_now_and_then() {
    if (watching == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_asked < BETWEEN_QUESTIONS) return;
    const auto* ask = watching;
    const Hold<const std::function<void()>*> quiet(watching, nullptr);
    (*ask)();
    last_asked = std::chrono::steady_clock::now();
}

struct Job {
    const std::function<void(std::int64_t)>* body;
    std::int64_t n_tasks;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> seats{0};    // workers that may still join
    std::atomic<int> running{0};  // workers inside
    std::mutex error_mutex;
    std::exception_ptr error;

    void work() {
        const Hold<bool> inside(within_job, true);
        for (std::int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) {
            try {
                ask_now_and_then();
                (*body)(task);
            } catch (...) {
                std::lock_guard<std::mutex> lock(error_mutex);
                if (!error) error = std::current_exception();
                next.store(n_tasks);
            }
        }
    }
};

// Workers sleep between jobs; they are never joined, because a process that ends takes them along. A child made by
// fork() has no workers, so the pool notes the process it belongs to and starts anew in a child.
struct Pool {
    std::mutex mutex;
    std::condition_variable wake, done;
    Job* job = nullptr;
    std::uint64_t ticket = 0;
    int n_workers = 0;
    std::mutex entry;  // one job at a time

    void worker() {
        std::uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return ticket != seen; });
            seen = ticket;
            Job* mine = job;
            if (mine == nullptr || mine->seats.fetch_sub(1) <= 0) continue;
            mine->running.fetch_add(1);
            lock.unlock();
            mine->work();
            lock.lock();
            if (mine->running.fetch_sub(1) == 1) done.notify_all();
        }
    }

    void run(Job& work, int n_threads) {
        std::lock_guard<std::mutex> one(entry);
        {
            std::lock_guard<std::mutex> lock(mutex);
            for (; n_workers < n_threads - 1; ++n_workers) std::thread([this] { worker(); }).detach();
            work.seats.store(n_threads - 1);
            job = &work;
            ++ticket;
        }
        wake.notify_all();
        work.work();
        std::unique_lock<std::mutex> lock(mutex);
        job = nullptr;
        done.wait(lock, [&] { return work.running.load() == 0; });
    }
};

Pool& pool() {
    static std::mutex guard;
    static Pool* instance = nullptr;
    static long owner = 0;
#if defined(__unix__) || defined(__APPLE__)
    const long self = static_cast<long>(getpid());
#else
    const long self = 1;
#endif
    std::lock_guard<std::mutex> lock(guard);
    if (instance == nullptr || owner != self) {
        instance = new Pool;  // the parent's pool, if any, is left to the parent
        owner = self;
    }
    return *instance;
}

}  // namespace

Watch::Watch(std::function<void()> ask) : ask_(std::move(ask)), outer_(watching) {
    watching = &ask_;
    last_asked = std::chrono::steady_clock::now();
}

Watch::~Watch() { watching = outer_; }

int available_threads(int n_threads) { return within_job ? 1 : n_threads; }

void parallel_for(std::int64_t n_tasks, int n_threads, const std::function<void(std::int64_t)>& body) {
    n_threads = available_threads(n_threads);
    if (n_threads > n_tasks) n_threads = static_cast<int>(n_tasks);
    if (n_threads <= 1) {
        for (std::int64_t task = 0; task < n_tasks; ++task) {
            ask_now_and_then();
            body(task);
        }
        return;
    }
    Job job;
    job.body = &body;
    job.n_tasks = n_tasks;
    pool().run(job, n_threads);
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace undirected
