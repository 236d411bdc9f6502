#include "bench/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/allocation_count.h"
#include "bench/ceilings.h"
#include "bench/problems.h"
#include "impl/kernels/attention_kernels.h"
#include "impl/runtime/scratch_memory.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::bench {
namespace {

using nlohmann::json;

// One operator, forward and backward, as a function of its length.
struct Family {
    std::string variable;
    double time_exponent;
    std::function<std::vector<Problem>(std::int64_t length)> problems;
};

const std::vector<Family>& families() {
    static const std::vector<Family> all = {
        {"S", 2,
         [](std::int64_t length) {
             return dense_problems(ATTNCHECK_BFLOAT16, {1, length, 128, true});
         }},
        // 16 blocks of 16 fit into the shortest sequence. Fewer query heads would leave the reading
        // of scattered keys, which get out of the caches as T grows, as the larger part.
        {"T", 1,
         [](std::int64_t length) {
             return selected_problems(ATTNCHECK_BFLOAT16, {length, 16, 16, 16});
         }},
        {"T", 1,
         [](std::int64_t length) { return compress_problems(ATTNCHECK_BFLOAT16, length); }}};
    return all;
}

std::string name_of(const Problem& problem) { return problem.op + " " + problem.dtype_name; }

void call(const Problem& problem) {
    if (const int status = problem.call(); status != 0)
        throw std::runtime_error(fmt::format("{} returned {}", problem.op, status));
}

struct Point {
    double time_s = std::numeric_limits<double>::infinity(), bytes = 0;
};

// Short calls are repeated for a fifth of a second, of which the fastest counts.
Point measure_point(const Problem& problem, Clock clock) {
    call(problem);  // makes the data and touches the outputs
    Point point;
    impl::drop_kept_scratch();
    restart_allocation_count();
    call(problem);
    point.bytes = static_cast<double>(peak_allocated_bytes());
    double total_s = 0;
    for (int repetition = 0; repetition < 20 && (repetition == 0 || total_s < 0.2); ++repetition) {
        const double time_s = seconds(clock, [&] { call(problem); });
        point.time_s = std::min(point.time_s, time_s);
        total_s += time_s;
    }
    return point;
}

json curve(const std::string& name, const std::string& variable, const char* unit, double expected,
           const std::vector<double>& x, const std::vector<double>& y) {
    return {{"name", name},
            {"variable", variable},
            {"unit", unit},
            {"expected", expected},
            {"x", x},
            {"y", y},
            {"exponent", growth_exponent(x, y)}};
}

void measure_family(const Family& family, const GrowthOptions& options, json& curves) {
    const Clock clock = options.threads == 1 ? Clock::kCpu : Clock::kWall;
    std::vector<std::string> names;
    std::vector<double> lengths;
    std::vector<std::vector<Point>> points;
    for (std::int64_t length = 256; length <= options.longest; length *= 2) {
        std::vector<Problem> problems = family.problems(length);
        std::erase_if(problems, [&](const Problem& problem) {
            return name_of(problem).find(options.only) == std::string::npos;
        });
        if (problems.empty()) return;
        names.resize(problems.size());
        points.resize(problems.size());
        lengths.push_back(static_cast<double>(length));
        for (std::size_t i = 0; i < problems.size(); ++i) {
            names[i] = name_of(problems[i]);
            points[i].push_back(measure_point(problems[i], clock));
            std::cerr << fmt::format("{} {}={}: {:.4g} s, {:.4g} MiB\n", names[i], family.variable,
                                     length, points[i].back().time_s,
                                     points[i].back().bytes / (1 << 20));
        }
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        std::vector<double> times, bytes;
        for (const Point& point : points[i]) {
            times.push_back(point.time_s);
            bytes.push_back(point.bytes);
        }
        curves.push_back(
            curve(names[i], family.variable, "s", family.time_exponent, lengths, times));
        curves.push_back(curve(names[i], family.variable, "bytes", 1, lengths, bytes));
    }
}

// Large enough that waking a thread costs nothing, small enough for a few rounds.
std::vector<Problem> threaded_problems(const GrowthOptions& options) {
    std::vector<Problem> all;
    const std::int64_t attention = std::min<std::int64_t>(options.longest, 4096);
    const auto add = [&](std::vector<Problem> some) {
        for (Problem& problem : some) {
            if (name_of(problem).find(options.only) != std::string::npos)
                all.push_back(std::move(problem));
        }
    };
    add(dense_problems(ATTNCHECK_BFLOAT16, {8, attention, 128, true}));
    add(selected_problems(ATTNCHECK_BFLOAT16, {std::max<std::int64_t>(attention, 1024)}));
    add(compress_problems(ATTNCHECK_BFLOAT16, options.longest));
    return all;
}

json measure_threads(const GrowthOptions& options) {
    json ratios = json::array();
    if (std::thread::hardware_concurrency() < 2) return ratios;
    for (const Problem& problem : threaded_problems(options)) {
        call(problem);
        double best_s[2];
        std::fill_n(best_s, 2, std::numeric_limits<double>::infinity());
        for (int round = 0; round < 7; ++round) {
            for (const int threads : {1, 2}) {
                impl::set_num_threads(threads);
                double& best = best_s[threads - 1];
                best = std::min(best, seconds(Clock::kWall, [&] { call(problem); }));
            }
        }
        ratios.push_back({{"name", name_of(problem)},
                          {"shape", problem.shape},
                          {"one_s", best_s[0]},
                          {"two_s", best_s[1]},
                          {"ratio", best_s[0] / best_s[1]}});
        std::cerr << fmt::format("{} {}: two threads {:.2f} times as fast\n", name_of(problem),
                                 problem.shape, best_s[0] / best_s[1]);
    }
    return ratios;
}

}  // namespace

double growth_exponent(std::span<const double> x, std::span<const double> y) {
    const std::size_t count = std::min(x.size(), y.size()), from = count / 2;
    if (count - from < 2) return 0;
    double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
    for (std::size_t i = from; i < count; ++i) {
        if (!(x[i] > 0) || !(y[i] > 0)) return 0;
        const double log_x = std::log(x[i]), log_y = std::log(y[i]);
        sum_x += log_x;
        sum_y += log_y;
        sum_xx += log_x * log_x;
        sum_xy += log_x * log_y;
    }
    const auto n = static_cast<double>(count - from);
    return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

json measure_growth(const GrowthOptions& options) {
    impl::set_num_threads(options.threads);
    json curves = json::array();
    for (const Family& family : families()) measure_family(family, options, curves);
    if (curves.empty())
        throw std::runtime_error("--only \"" + options.only + "\" is in no curve's name");
    const json ratios = measure_threads(options);
    impl::set_num_threads(0);
    return {{"machine", machine_features()},
            {"instruction_set", impl::default_attention_kernels().isa},
            {"threads", options.threads},
            {"curves", curves},
            {"ratios", ratios}};
}

std::string growth_table(const json& growth) {
    std::string text = fmt::format(
        "{}; kernels {}, {} thread{}. Exponents are fitted to the upper half of the lengths.\n\n",
        growth["machine"].get<std::string>(), growth["instruction_set"].get<std::string>(),
        growth["threads"].get<int>(), growth["threads"] == 1 ? "" : "s");
    text +=
        "| operator | measured | lengths | at the longest | exponent | expected |\n"
        "|---|---|---|---:|---:|---:|\n";
    for (const json& curve : growth["curves"]) {
        const auto x = curve["x"].get<std::vector<double>>(),
                   y = curve["y"].get<std::vector<double>>();
        if (x.empty() || x.size() != y.size())
            throw std::runtime_error("a curve needs as many y as x, and some");
        const bool bytes = curve["unit"] == "bytes";
        text += fmt::format("| {} | {} against {} | {:.0f} to {:.0f} | {} | {:.2f} | {}{:.0f} |\n",
                            curve["name"].get<std::string>(), bytes ? "peak memory" : "time",
                            curve["variable"].get<std::string>(), x.front(), x.back(),
                            bytes ? fmt::format("{:.2f} MiB", y.back() / (1 << 20))
                                  : fmt::format("{:.2f} ms", y.back() * 1e3),
                            growth_exponent(x, y), bytes ? "at most " : "",
                            curve["expected"].get<double>());
    }
    if (growth["ratios"].empty()) return text;
    text += "\n| operator | shape | one thread | two threads | ratio |\n|---|---|---:|---:|---:|\n";
    for (const json& row : growth["ratios"]) {
        text += fmt::format("| {} | {} | {:.2f} ms | {:.2f} ms | {:.2f} |\n",
                            row["name"].get<std::string>(), row["shape"].get<std::string>(),
                            row["one_s"].get<double>() * 1e3, row["two_s"].get<double>() * 1e3,
                            row["ratio"].get<double>());
    }
    return text;
}

}  // namespace attncheck::bench
