// Runs a fuzz target on files and folders, for compilers without libFuzzer and for replaying a
// corpus.
//
// Usage: program FILE_OR_FOLDER...   Options (-name=value) are ignored, so that libFuzzer's command
// lines work. Exit status: 0 every input ran, 3 there was none. A failing input ends the program;
// its name is printed before.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

void run(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
    // A buffer of exactly this size: a sanitizer sees the first byte read beyond it.
    const auto bytes = std::make_unique<std::uint8_t[]>(content.size());
    std::copy(content.begin(), content.end(), bytes.get());
    std::printf("%s (%zu bytes)\n", path.c_str(), content.size());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(bytes.get(), content.size());
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<fs::path> inputs;
    for (int i = 1; i < argc; ++i) {
        if (argv[i][0] == '-') continue;
        if (!fs::is_directory(argv[i])) {
            inputs.emplace_back(argv[i]);
            continue;
        }
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(argv[i]))
            if (entry.is_regular_file()) inputs.push_back(entry.path());
    }
    std::sort(inputs.begin(), inputs.end());
    for (const fs::path& path : inputs) run(path);
    std::printf("%zu inputs\n", inputs.size());
    return inputs.empty() ? 3 : 0;
}
