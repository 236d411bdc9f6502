#ifndef ATTNCHECK_BENCH_ALLOCATION_COUNT_H
#define ATTNCHECK_BENCH_ALLOCATION_COUNT_H

#include <cstdint>

/// What the program asks of operator new, which is all that the implementation asks for at all
/// (thread stacks aside). Counting is exact and repeatable where the resident set is neither.
namespace attncheck::bench {

/// From now on peak_allocated_bytes counts what is allocated beyond what there is now.
void restart_allocation_count();
std::int64_t peak_allocated_bytes();

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_ALLOCATION_COUNT_H
