// SHA-256 against the examples of FIPS 180-4 and of NIST's list of test vectors.
#include "properties/candidate/sha256.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace attncheck::properties {
namespace {

std::string sum_of(std::string_view text) {
    Sha256 sum;
    sum.add(text);
    return sum.hex();
}

TEST(Sha256, AgreesWithTheStandard) {
    EXPECT_EQ(sum_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sum_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sum_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sum_of(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, OfFilesIsOfTheirContentsInARow) {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("attncheck_sha." + std::to_string(getpid())))
            .string();
    std::ofstream(path) << "ab";
    EXPECT_EQ(sha256_of_files({path, path}), sum_of("abab"));
    std::filesystem::remove(path);
    EXPECT_EQ(sha256_of_files({path}), "");
}

}  // namespace
}  // namespace attncheck::properties
