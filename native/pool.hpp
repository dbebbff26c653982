// A small pool of worker threads. Work is a range of task numbers handed out one by one; results never depend on
// which thread ran a task, so that the number of threads changes the time and nothing else.
#pragma once
#include <cstdint>
#include <functional>

namespace undirected {

// How many threads work that is begun here may take: one, if it is begun within a task.
int available_threads(int n_threads);

// Runs body(task) for every task in [0, n_tasks), on at most n_threads threads (the caller's among them), within a task on that thread.
// An exception thrown by a task is rethrown here once all tasks have ended.
void parallel_for(std::int64_t n_tasks, int n_threads, const std::function<void(std::int64_t)>& body);

// While one is alive, parallel_for calls `ask` between tasks on the thread that made it, a few times a second. What `ask` throws ends
// the work as an exception of a task does.
class Watch {
public:
    explicit Watch(std::function<void()> ask);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

private:
    std::function<void()> ask_;
    const std::function<void()>* outer_;
};

}  // namespace undirected
