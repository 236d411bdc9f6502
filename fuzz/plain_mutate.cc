// LLVMFuzzerMutate where there is no libFuzzer: a byte changed, put in or taken out.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "properties/case/random.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t max_size) {
    static attncheck::properties::Random random(1);
    const auto kind = random.between(0, 2);
    const auto at =
        random.between(0, std::max<std::int64_t>(static_cast<std::int64_t>(size) - 1, 0));
    const auto byte = static_cast<std::uint8_t>(random.next());
    if (size == 0 || (kind == 0 && size < max_size)) {
        if (max_size == 0) return 0;
        std::copy_backward(data + at, data + size, data + size + 1);
        data[at] = byte;
        return size + 1;
    }
    if (kind == 1) {
        std::copy(data + at + 1, data + size, data + at);
        return size - 1;
    }
    data[at] = byte;
    return size;
}
