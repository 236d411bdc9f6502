#include "bench/torch_attention_times.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attncheck::bench {
namespace {

/// For a shell, in single quotes.
std::string shell_word(const std::string& text) {
    std::string out = "'";
    for (const char letter : text) out += letter == '\'' ? "'\\''" : std::string(1, letter);
    return out + "'";
}

std::string output_of(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) throw std::runtime_error("cannot start " + command);
    std::string text;
    char part[4096];
    for (std::size_t got; (got = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, got);
    const int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        throw std::runtime_error(fmt::format("{} ended with status {}", command,
                                             WIFEXITED(status) ? WEXITSTATUS(status) : status));
    return text;
}

}  // namespace

TorchTimes::TorchTimes(std::string python, std::string script, int threads,
                       const std::vector<std::int64_t>& lengths) {
    if (python.empty() || lengths.empty()) return;
    command_ = fmt::format("{} {} --rounds 1 --threads {}", shell_word(python), shell_word(script), threads);
    for (const std::int64_t length : lengths) command_ += fmt::format(" {}", length);
}

void TorchTimes::measure() {
    if (command_.empty()) return;
    const auto run = nlohmann::json::parse(output_of(command_));
    version_ = fmt::format("{} {}", run.at("torch").get<std::string>(),
                           run.at("capability").get<std::string>());
    for (const auto& row : run.at("rows")) {
        const TorchTime time{row.at("operator"), row.at("dtype"), row.at("shape"), row.at("ms")};
        const auto known = std::ranges::find_if(best_, [&](const TorchTime& one) {
            return one.op == time.op && one.dtype == time.dtype && one.shape == time.shape;
        });
        if (known == best_.end())
            best_.push_back(time);
        else
            known->ms = std::min(known->ms, time.ms);
    }
}

}  // namespace attncheck::bench
