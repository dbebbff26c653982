// The lock of an object that several Python threads may use at once.
#pragma once
#include <nanobind/nanobind.h>

#include <mutex>
#include <shared_mutex>

// Work is done with the interpreter's lock given back first and the object's own taken then. The other way round, a thread that waits for
// the object would keep the one that works on it from coming back to Python.
class ObjectLock {
public:
    // Alone with the object.
    template <class Work>
    auto change(const Work& work) const {
        const nanobind::gil_scoped_release released;
        const std::unique_lock lock(mutex_);
        return work();
    }

    // Together with others that only read.
    template <class Work>
    auto read(const Work& work) const {
        const nanobind::gil_scoped_release released;
        const std::shared_lock lock(mutex_);
        return work();
    }

private:
    mutable std::shared_mutex mutex_;
};
