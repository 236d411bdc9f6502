// attncheck_speed: the built-in implementation beside what the machine can do.
//
// Every round measures the ceilings and every problem, so that both see the same machine; the best
// of all rounds counts for either. With one thread the clock is the CPU time of that thread (other
// programs on the machine then slow nothing but the caches), otherwise the wall's.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bench/blas_attention.h"
#include "bench/ceilings.h"
#include "bench/dnnl_attention.h"
#include "bench/growth.h"
#include "bench/problems.h"
#include "bench/torch_attention_times.h"
#include "impl/kernels/attention_kernels.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::bench {
namespace {

using nlohmann::json;

struct Options {
    int threads = 1, rounds = 5;
    std::string only, json_file, from_file, readme_file, python, name = "speed";
    bool large = true, growth = false;
    std::int64_t longest = 65536;
};

std::vector<Problem> all_problems(const Options& options) {
    std::vector<Problem> problems;
    const auto add = [&](std::vector<Problem> some) {
        for (Problem& problem : some) {
            const std::string name = problem.op + " " + problem.dtype_name + " " + problem.shape;
            if (name.find(options.only) != std::string::npos)
                problems.push_back(std::move(problem));
        }
    };
    const std::int64_t heads = options.threads == 1 ? 1 : 8;
    for (const std::int64_t length : {1024, 4096}) {
        if (length > 1024 && !options.large) continue;
        for (const bool causal : {false, true}) {
            const DenseShape shape{heads, length, 128, causal};
            for (const auto dtype : {ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT16, ATTNCHECK_FLOAT32})
                add(dense_problems(dtype, shape));
            add(dnnl_problems(shape));
            add(blas_problems(shape));
        }
    }
    if (options.large) {
        for (const bool causal : {false, true}) {
            add(dense_problems(ATTNCHECK_BFLOAT16, {heads, 4096, 64, causal}));
            add(dense_problems(ATTNCHECK_BFLOAT16, {heads, 4096, 192, causal, 128}));
            add(dense_problems(ATTNCHECK_BFLOAT16, {heads, 16384, 128, causal}));
        }
    }
    for (const std::int64_t group : {16, 4}) {
        for (const auto dtype : {ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT16})
            add(selected_problems(dtype, {.query_heads = group}));
    }
    for (const std::int64_t tokens : {65536, 262144}) {
        if (tokens > 65536 && !options.large) continue;
        for (const auto dtype : {ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT16})
            add(compress_problems(dtype, tokens));
    }
    return problems;
}

struct Competitor {
    std::string name, forward, gradient;  ///< the latter as their rows have them
};
const Competitor kCompetitors[] = {
    {"oneDNN", "oneDNN, composed", "oneDNN, composed, gradient"},
    {"OpenBLAS", "OpenBLAS, composed", "OpenBLAS, composed, gradient"},
    {"PyTorch", "PyTorch flash", "PyTorch flash, gradient"},
};

// The competitors' times over those of the same problem: above 1 the built-in one is faster.
void add_ratios(json& rows) {
    for (json& row : rows) {
        const bool forward = row["operator"] == "flash_attention_score";
        if (!forward && row["operator"] != "flash_attention_score_grad") continue;
        for (const Competitor& competitor : kCompetitors) {
            const std::string& op = forward ? competitor.forward : competitor.gradient;
            for (const json& other : rows) {
                if (other["operator"] == op && other["dtype"] == row["dtype"] &&
                    other["shape"] == row["shape"])
                    row["times_as_fast_as"][competitor.name] =
                        other["ms"].get<double>() / row["ms"].get<double>();
            }
        }
    }
}

// PyTorch's rows, with the work of the built-in operator on the same problem.
void add_torch(json& rows, const TorchTimes& torch) {
    for (const TorchTime& time : torch.best()) {
        const std::string op = time.op == kCompetitors[2].forward ? "flash_attention_score"
                                                                  : "flash_attention_score_grad";
        for (const json& row : json(rows)) {
            if (row["operator"] != op || row["dtype"] != time.dtype || row["shape"] != time.shape)
                continue;
            json other = row;
            const double slower = time.ms / row["ms"].get<double>();
            other["operator"] = time.op;
            other["ms"] = time.ms;
            for (const char* rate : {"rate", "fraction"})
                other[rate] = row[rate].get<double>() / slower;
            rows.push_back(other);
        }
    }
}

/// Of the dense problems that PyTorch is measured on, too.
std::vector<std::int64_t> torch_lengths(const std::vector<Problem>& problems) {
    std::vector<std::int64_t> lengths;
    for (const std::int64_t length : {1024, 4096}) {
        const std::string shape = describe({1, length, 128, false});
        if (std::ranges::any_of(problems, [&](const Problem& problem) {
                return problem.op.starts_with("flash") && problem.shape.starts_with(shape);
            }))
            lengths.push_back(length);
    }
    return lengths;
}

json measure(const Options& options) {
    const Clock clock = options.threads == 1 ? Clock::kCpu : Clock::kWall;
    const std::vector<Problem> problems = all_problems(options);
    if (problems.empty())
        throw std::runtime_error("--only \"" + options.only + "\" is in no row's name");
    std::vector<double> best_s(problems.size(), std::numeric_limits<double>::infinity());
    Ceilings best;
    std::map<std::int64_t, std::pair<CopyBuffers, MemoryRates>> copies;  // by size
    for (const Problem& problem : problems) {
        if (problem.copy_bytes > 0)
            copies.try_emplace(problem.copy_bytes, CopyBuffers(problem.copy_bytes), MemoryRates{});
    }
    set_blas_threads(options.threads);
    set_dnnl_threads(options.threads);
    impl::set_num_threads(options.threads);
    const auto call = [](const Problem& problem) {
        if (const int status = problem.call(); status != 0)
            throw std::runtime_error(fmt::format("{} returned {}", problem.op, status));
    };
    for (const Problem& problem : problems) call(problem);  // makes the data
    TorchTimes torch(options.python, ATTNCHECK_TORCH_SCRIPT, options.threads,
                     torch_lengths(problems));
    for (int round = 0; round < options.rounds; ++round) {
        keep_best(best, measure_ceilings(clock, options.threads, impl::default_attention_kernels().isa));
        torch.measure();
        for (auto& [bytes, copy] : copies)
            keep_best(copy.second, copy.first.measure(clock, options.threads));
        for (std::size_t i = 0; i < problems.size(); ++i) {
            const int repetitions = problems[i].copy_bytes > 0 ? kCopyRepetitions : 1;
            for (int repetition = 0; repetition < repetitions; ++repetition)
                best_s[i] = std::min(best_s[i], seconds(clock, [&] { call(problems[i]); }));
        }
    }
    impl::set_num_threads(0);
    json rows = json::array();
    for (std::size_t i = 0; i < problems.size(); ++i) {
        const Problem& p = problems[i];
        const bool copied = p.copy_bytes > 0;
        const double rate = p.work / best_s[i], ceiling = copied
                                                              ? copies.at(p.copy_bytes).second.copy
                                                              : best.product_flops(p.dtype);
        rows.push_back({{"operator", p.op},
                        {"dtype", p.dtype_name},
                        {"shape", p.shape},
                        {"unit", copied ? "GB/s" : "GFLOP/s"},
                        {"ms", best_s[i] * 1e3},
                        {"rate", rate * 1e-9},
                        {"fraction", rate / ceiling}});
    }
    add_torch(rows, torch);
    add_ratios(rows);
    json memory = json::array();
    for (const auto& [bytes, copy] : copies) {
        memory.push_back({{"mib", bytes >> 20},
                          {"copy_gbytes", copy.second.copy * 1e-9},
                          {"plain_copy_gbytes", copy.second.plain_copy * 1e-9},
                          {"read_gbytes", copy.second.read * 1e-9}});
    }
    return {{"machine", machine_features()},
            {"instruction_set", impl::default_attention_kernels().isa},
            {"threads", options.threads},
            {"clock", clock == Clock::kCpu ? "cpu" : "wall"},
            {"rounds", options.rounds},
            {"torch", torch.version()},
            {"ceilings",
             {{"fp32_fma_gflops", best.fp32_flops * 1e-9},
              {"bf16_dot_gflops", best.bf16_dot_flops * 1e-9},
              {"amx_bf16_gflops", best.amx_bf16_flops * 1e-9},
              {"memory", memory}}},
            {"rows", rows}};
}

// Where the target is missed, and what it would take: a rival near the ceiling cannot be beaten by far.
std::string why_not_faster(const json& rows) {
    constexpr double kTarget = 1.5;
    std::string text;
    for (const json& row : rows) {
        const double ratio = row.value("/times_as_fast_as/PyTorch"_json_pointer, kTarget);
        if (ratio >= kTarget) continue;
        const double own = row["fraction"].get<double>();
        text += fmt::format("- {} {} {}: {:.2f} times as fast as PyTorch, which is at {:.0f} % of the ceiling; "
                            "{} times as fast would be {:.0f} % of it.\n",
                            row["operator"].get<std::string>(), row["dtype"].get<std::string>(),
                            row["shape"].get<std::string>(), ratio, own / ratio * 100, kTarget,
                            own / ratio * kTarget * 100);
    }
    return text.empty() ? text : fmt::format("\nLess than {} times as fast as PyTorch:\n\n{}", kTarget, text);
}

std::string table(const json& run) {
    const json& ceilings = run["ceilings"];
    std::string text = fmt::format(
        "{}; kernels {}, {} thread{}, {} clock, best of {} rounds. Ceilings of this run: ",
        run["machine"].get<std::string>(), run["instruction_set"].get<std::string>(),
        run["threads"].get<int>(), run["threads"] == 1 ? "" : "s", run["clock"].get<std::string>(),
        run["rounds"].get<int>());
    text += fmt::format("fp32 FMA {:.0f} GFLOP/s", ceilings["fp32_fma_gflops"].get<double>());
    for (const auto& [key, name] : {std::pair("bf16_dot_gflops", "bf16 dot product"),
                                    std::pair("amx_bf16_gflops", "AMX bf16")}) {
        const double rate = ceilings[key].get<double>();
        if (rate > 0) text += fmt::format(", {} {:.0f} GFLOP/s", name, rate);
    }
    for (const json& memory : ceilings["memory"]) {
        text += fmt::format(", copy of {} MiB {:.1f} GB/s (plain {:.1f}, reading alone {:.1f})",
                            memory["mib"].get<std::int64_t>(), memory["copy_gbytes"].get<double>(),
                            memory["plain_copy_gbytes"].get<double>(),
                            memory["read_gbytes"].get<double>());
    }
    if (const std::string torch = run.value("torch", ""); !torch.empty())
        text += fmt::format("; PyTorch {}", torch);
    text += ".\n\n";
    text +=
        "| operator | dtype | shape | ms | rate | of the ceiling | times as fast as |\n"
        "|---|---|---|---:|---:|---:|---|\n";
    for (const json& row : run["rows"]) {
        std::string ratios;
        if (row.contains("times_as_fast_as")) {
            for (const auto& [name, ratio] : row["times_as_fast_as"].items())
                ratios += fmt::format("{} {:.2f} ", name, ratio.get<double>());
        }
        text += fmt::format("| {} | {} | {} | {:.1f} | {:.1f} {} | {:.0f} % | {}|\n",
                            row["operator"].get<std::string>(), row["dtype"].get<std::string>(),
                            row["shape"].get<std::string>(), row["ms"].get<double>(),
                            row["rate"].get<double>(), row["unit"].get<std::string>(),
                            row["fraction"].get<double>() * 100, ratios);
    }
    return text + why_not_faster(run["rows"]);
}

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

// The table replaces whatever is between the markers.
void write_readme(const std::string& path, const std::string& name, const std::string& text) {
    const std::string first = "<!-- " + name + ":begin -->", last = "<!-- " + name + ":end -->";
    std::string readme = read_file(path);
    const std::size_t begin = readme.find(first + "\n"), end = readme.find(last);
    if (begin == std::string::npos || end == std::string::npos || end < begin)
        throw std::runtime_error(path + " has no lines " + first + " and " + last);
    const std::size_t from = begin + first.size() + 1;
    readme.replace(from, end - from, text);
    write_file(path, readme);
}

int run_growth(const Options& options) {
    if (!options.readme_file.empty()) throw std::runtime_error("--readme is not for --growth");
    const json result = options.from_file.empty()
                            ? measure_growth({options.threads, options.longest, options.only})
                            : json::parse(read_file(options.from_file));
    std::cout << growth_table(result);
    if (!options.json_file.empty()) write_file(options.json_file, result.dump(1) + "\n");
    return 0;
}

int run(const Options& options) {
    if (options.growth) return run_growth(options);
    const json result =
        options.from_file.empty() ? measure(options) : json::parse(read_file(options.from_file));
    std::cout << table(result);
    if (!options.json_file.empty()) write_file(options.json_file, result.dump(1) + "\n");
    if (!options.readme_file.empty()) write_readme(options.readme_file, options.name, table(result));
    return 0;
}

}  // namespace
}  // namespace attncheck::bench

int main(int argc, char** argv) {
    attncheck::bench::Options options;
    CLI::App app("Speed of the built-in implementation as a fraction of what the machine can do");
    app.add_option("--threads", options.threads, "threads of every measurement")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--rounds", options.rounds, "repetitions, of which the best counts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_option(
        "--only", options.only,
        "rows whose operator, dtype and shape contain this (with --growth: operator and dtype)");
    app.add_flag("--large,!--no-large", options.large, "lengths beyond 1024 as well");
    app.add_flag("--growth", options.growth,
                 "instead of rates: time and memory against the length, and the gain by a thread");
    app.add_option("--longest", options.longest, "length up to which --growth goes")
        ->check(CLI::Range(256, 1 << 20))
        ->capture_default_str();
    app.add_option("--torch", options.python,
                   "interpreter that has PyTorch: its fused attention is timed in every round");
    app.add_option("--json", options.json_file, "write the measurement there");
    app.add_option("--from", options.from_file, "measure nothing, show a file of --json");
    app.add_option("--readme", options.readme_file, "put the table between the file's markers");
    app.add_option("--table", options.name, "the markers are <!-- NAME:begin --> and <!-- NAME:end -->")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        return attncheck::bench::run(options);
    } catch (const std::exception& failure) {
        std::cerr << "attncheck_speed: " << failure.what() << "\n";
        return 2;
    }
}
