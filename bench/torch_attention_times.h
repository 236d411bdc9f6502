#ifndef ATTNCHECK_BENCH_TORCH_ATTENTION_TIMES_H
#define ATTNCHECK_BENCH_TORCH_ATTENTION_TIMES_H

#include <cstdint>
#include <string>
#include <vector>

/// The competitor that people run: the fused attention of PyTorch for the CPU, in a separate process
/// (bench/torch_attention.py). It is started once in every round, so that it sees the machine
/// that the ceilings and the built-in operators see.
namespace attncheck::bench {

struct TorchTime {
    std::string op;  ///< "PyTorch flash" or "PyTorch flash, gradient"
    std::string dtype, shape;
    double ms;
};

class TorchTimes {
public:
    /// `python`: an interpreter that has PyTorch; empty: none is measured. `script`: the path of
    /// torch_attention.py. One head with one thread, else eight, as in the other rows.
    TorchTimes(std::string python, std::string script, int threads,
               const std::vector<std::int64_t>& lengths);

    /// Measures every row once more and keeps the best. Throws std::runtime_error with the command
    /// and its exit status where it fails.
    void measure();

    const std::vector<TorchTime>& best() const { return best_; }
    const std::string& version() const { return version_; }  ///< "2.13.0+cpu AVX512"

private:
    std::string command_, version_;
    std::vector<TorchTime> best_;
};

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_TORCH_ATTENTION_TIMES_H
