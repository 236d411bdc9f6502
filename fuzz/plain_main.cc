// Runs a fuzz target where there is no libFuzzer: on files and folders, and on what mutation and
// cross-over make of them (without coverage to guide them).
//
// Usage: program [-operator=NAME] [-runs=N] [-seed=S] [-max_len=N] FILE_OR_FOLDER...   N further inputs after those
// given; NAME is the operator family that the question is about; other options (-name=value) are ignored, so that
// libFuzzer's command lines work. Exit status: 0 every input ran, 3 there was none. A failing input ends the program; the
// name of a file is printed before it runs, a generated one is left in ./plain-input.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "properties/case/random.h"

using Input = std::vector<std::uint8_t>;
using attncheck::properties::Random;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                                                     std::size_t size,
                                                                     std::size_t max_size,
                                                                     unsigned seed);
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomCrossOver(
    const std::uint8_t* first, std::size_t first_size, const std::uint8_t* second,
    std::size_t second_size, std::uint8_t* out, std::size_t max_out_size, unsigned seed);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

namespace fs = std::filesystem;

struct Options {
    std::uint64_t runs = 0, seed = 1, max_len = 1024;
    std::vector<fs::path> inputs;
};

Options read_options(int argc, char** argv) {
    Options options;
    for (const std::string_view argument : std::vector<std::string_view>(argv + 1, argv + argc)) {
        const auto number = [&] {
            return std::strtoull(argument.substr(argument.find('=') + 1).data(), nullptr, 10);
        };
        if (argument.starts_with("-runs=")) options.runs = number();
        if (argument.starts_with("-seed=")) options.seed = number();
        if (argument.starts_with("-max_len=")) options.max_len = number();
        if (argument.starts_with("-operator=")) attncheck::fuzz::target.family = argument.substr(argument.find('=') + 1);
        if (argument.starts_with("-")) continue;
        if (!fs::is_directory(argument)) {
            options.inputs.emplace_back(argument);
            continue;
        }
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(argument))
            if (entry.is_regular_file()) options.inputs.push_back(entry.path());
    }
    std::sort(options.inputs.begin(), options.inputs.end());
    return options;
}

void run(const Input& input) {
    // A buffer of exactly this size: a sanitizer sees the first byte read beyond it.
    const auto bytes = std::make_unique<std::uint8_t[]>(input.size());
    std::copy(input.begin(), input.end(), bytes.get());
    LLVMFuzzerTestOneInput(bytes.get(), input.size());
}

Input child_of(const std::vector<Input>& parents, std::size_t max_len, Random& random) {
    const Input &first = random.pick(parents), &second = random.pick(parents);
    const auto seed = static_cast<unsigned>(random.next());
    Input child(std::max(max_len, first.size()));
    if (LLVMFuzzerCustomCrossOver && random.chance(20)) {
        child.resize(LLVMFuzzerCustomCrossOver(first.data(), first.size(), second.data(),
                                               second.size(), child.data(), child.size(), seed));
        return child;
    }
    std::copy(first.begin(), first.end(), child.begin());
    child.resize(LLVMFuzzerCustomMutator
                     ? LLVMFuzzerCustomMutator(child.data(), first.size(), child.size(), seed)
                     : LLVMFuzzerMutate(child.data(), first.size(), child.size()));
    return child;
}

/// The input that runs, in a file of the working directory: whatever ends the program leaves it.
class LastInput {
public:
    LastInput() : file_(open(kName, O_RDWR | O_CREAT | O_TRUNC, 0666)) {}
    ~LastInput() {
        close(file_);
        unlink(kName);
    }
    LastInput(const LastInput&) = delete;
    LastInput& operator=(const LastInput&) = delete;
    void keep(const Input& input) {
        const auto size = static_cast<off_t>(input.size());
        if (pwrite(file_, input.data(), input.size(), 0) != size || ftruncate(file_, size) != 0)
            std::perror(kName);
    }

private:
    static constexpr const char* kName = "plain-input";
    int file_;
};

void run_mutants(const std::vector<Input>& parents, const Options& options) {
    Random random(options.seed);
    LastInput last;
    for (std::uint64_t i = 0; i < options.runs; ++i) {
        const Input child = child_of(parents, options.max_len, random);
        last.keep(child);
        run(child);
    }
    std::printf("%llu mutants\n", static_cast<unsigned long long>(options.runs));
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = read_options(argc, argv);
    std::vector<Input> parents;
    for (const fs::path& path : options.inputs) {
        std::ifstream file(path, std::ios::binary);
        parents.emplace_back(std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>());
        std::printf("%s (%zu bytes)\n", path.c_str(), parents.back().size());
        std::fflush(stdout);
        run(parents.back());
    }
    std::printf("%zu inputs\n", parents.size());
    if (parents.empty()) return 3;
    if (options.runs > 0) run_mutants(parents, options);
    return 0;
}
