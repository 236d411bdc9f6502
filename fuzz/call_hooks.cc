// What libFuzzer (or plain_main.cc) calls to make inputs of the targets whose bytes are a call or a
// program of calls.
#include <algorithm>

#include "fuzz/call_mutator.h"
#include "fuzz/target.h"

using namespace attncheck;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

/// The child, cut to what fits.
std::size_t store(const fuzz::CallBytes& call, std::uint8_t* out, std::size_t max_size) {
    const std::vector<std::uint8_t> bytes = call.bytes();
    const std::size_t size = std::min(bytes.size(), max_size);
    std::copy_n(bytes.begin(), size, out);
    return size;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
    properties::Random random(seed);
    if (random.chance(20)) return LLVMFuzzerMutate(data, size, max_size);
    const auto call = fuzz::CallBytes::parse(data, size, fuzz::target.changes);
    return store(fuzz::mutated_call(call, fuzz::target.changes, random), data, max_size);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* first, std::size_t first_size,
                                                 const std::uint8_t* second,
                                                 std::size_t second_size, std::uint8_t* out,
                                                 std::size_t max_out_size, unsigned seed) {
    properties::Random random(seed);
    return store(fuzz::crossed_calls(fuzz::CallBytes::parse(first, first_size, fuzz::target.changes),
                                     fuzz::CallBytes::parse(second, second_size, fuzz::target.changes),
                                     fuzz::target.changes, random),
                 out, max_out_size);
}
