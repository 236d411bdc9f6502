// What libFuzzer (or plain_main.cc) calls to make inputs of the targets whose bytes are a case
// line.
#include <algorithm>

#include "fuzz/fuzzed_case.h"
#include "fuzz/target.h"

using namespace attncheck;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

/// A line that does not fit is cut, and then is no case line.
std::size_t store(const properties::Spec& spec, std::uint8_t* out, std::size_t max_size) {
    const std::string line = properties::print(spec);
    const std::size_t size = std::min(line.size(), max_size);
    std::copy_n(line.begin(), size, out);
    return size;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
    properties::Random random(seed);
    if (random.chance(fuzz::target.raw_percent)) return LLVMFuzzerMutate(data, size, max_size);
    const auto spec = fuzz::read_case(fuzz::target.family, data, size);
    return store(spec ? fuzz::mutated_case(*spec, fuzz::target.edits, random)
                      : fuzz::sampled_case(fuzz::target.family, random),
                 data, max_size);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* first, std::size_t first_size,
                                                 const std::uint8_t* second,
                                                 std::size_t second_size, std::uint8_t* out,
                                                 std::size_t max_out_size, unsigned seed) {
    properties::Random random(seed);
    const auto one = fuzz::read_case(fuzz::target.family, first, first_size);
    const auto two = fuzz::read_case(fuzz::target.family, second, second_size);
    if (!one || !two) return store(fuzz::sampled_case(fuzz::target.family, random), out, max_out_size);
    return store(fuzz::crossed_cases(*one, *two, random), out, max_out_size);
}
