// The platform that a run is for: what is legal depends on it (contract decision 10). A value of
// the run, passed to the generator, carried by every Spec and Call, and given to the candidate.
#pragma once

#include <array>
#include <string_view>

namespace attncheck::properties {

enum class Profile { ascend910b, ascend910_93, ascend950 };

inline constexpr std::array<std::string_view, 3> kProfileNames{"ascend910b", "ascend910_93",
                                                               "ascend950"};
inline std::string_view name_of(Profile profile) {
    return kProfileNames[static_cast<std::size_t>(profile)];
}

}  // namespace attncheck::properties
