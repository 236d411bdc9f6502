// Plans that are kept for later calls by a key which leaves something out.
#pragma once

#include <map>
#include <mutex>

namespace attncheck::mutants {

/// What the first call with this key made. Every place that asks keeps its own.
template <class Key, class Make>
auto first_with(const Key& key, const Make& make) {
    static std::mutex mutex;
    static std::map<Key, decltype(make())> kept;
    const std::lock_guard lock(mutex);
    const auto found = kept.find(key);
    return found != kept.end() ? found->second : kept.emplace(key, make()).first->second;
}

}  // namespace attncheck::mutants
