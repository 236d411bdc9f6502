#ifndef ATTNCHECK_IMPL_THREAD_POOL_H
#define ATTNCHECK_IMPL_THREAD_POOL_H

#include <cstdint>
#include <functional>

namespace attncheck::impl {

/// Threads a call may use, the caller included: the last set_num_threads, else
/// ATTNCHECK_NUM_THREADS (read once), else the number of hardware threads; between 1 and 256.
int num_threads();

/// For tests and benchmarks; 0 returns to the default.
void set_num_threads(int count);

/// Runs work(unit) once for every unit in [0, num_units), on the calling thread and on the pool's.
///
/// Which thread runs a unit, and when, is not defined: a caller that wants the same bits for any
/// number of threads gives each unit its own results. The pool serves one caller at a time; a
/// second one, meanwhile, runs its units itself.
/// Throws  the first exception thrown by a unit, after all started units have ended; other units
///         may be left out.
void parallel_for(std::int64_t num_units, const std::function<void(std::int64_t)>& work);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_THREAD_POOL_H
