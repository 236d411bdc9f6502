// SHA-256, for telling one library from another (FIPS 180-4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attncheck::properties {

class Sha256 {
public:
    void add(std::string_view bytes);
    std::string hex();  ///< of all that was added; nothing may be added afterwards

private:
    void add_block(const unsigned char* block);

    std::uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::uint64_t bytes_ = 0;
    unsigned char pending_[64] = {};
};

/// Of the contents of files, one after the other; empty when one of them cannot be read.
std::string sha256_of_files(const std::vector<std::string>& paths);

}  // namespace attncheck::properties
