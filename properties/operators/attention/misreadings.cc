// What a kernel may take the arguments of attention for: other corners, other windows, other lengths.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "properties/laws/attention_parts.h"
#include "properties/operators/attention/case.h"

namespace attncheck::properties {

std::vector<Misreading> neutral_misreadings(const AttentionProblem& problem) {
    const ref::NeutralAttentionShape& s = extras_of<NeutralParts>(problem).shape;
    std::vector<Misreading> list;
    const auto add = [&](const char* text, bool applies, auto change) {
        if (!applies) return;
        ref::NeutralAttentionShape other = s;
        change(other);
        list.push_back({text, ref::attention_columns(other)});
    };
    const bool has_window = s.window_left >= 0 || s.window_right >= 0;
    add(s.bottom_right ? "window aligned with the top left corner, not the bottom right one"
                       : "window aligned with the bottom right corner, not the top left one",
        has_window && s.query_lengths != s.kv_lengths,
        [](auto& other) { other.bottom_right = !other.bottom_right; });
    add("window_left not applied", s.window_left >= 0, [](auto& other) { other.window_left = -1; });
    add("window_right not applied", s.window_right >= 0, [](auto& other) { other.window_right = -1; });
    add("window_left one key too short", s.window_left >= 1, [](auto& other) { --other.window_left; });
    add("window_left one key too long", s.window_left >= 0, [](auto& other) { ++other.window_left; });
    add("window_right one key too short", s.window_right >= 1, [](auto& other) { --other.window_right; });
    add("window_right one key too long", s.window_right >= 0, [](auto& other) { ++other.window_right; });
    add("window_left and window_right exchanged", has_window && s.window_left != s.window_right,
        [](auto& other) { std::swap(other.window_left, other.window_right); });
    add("kv_length not applied", s.has_kv_length, [](auto& other) { other.has_kv_length = false; });
    add("kv_length of batch 0 taken for all", s.has_kv_length && s.kv_length.size() > 1,
        [](auto& other) {
            for (std::size_t b = 0; b < other.kv_length.size(); ++b)
                other.kv_length[b] = std::min(other.kv_length[0], other.kv_lengths[b]);
        });
    const auto add_lengths_of = [&](const char* text, std::size_t by) {
        add(text, s.has_kv_length && s.kv_length.size() > by, [&](auto& other) {
            const std::size_t count = other.kv_length.size();
            for (std::size_t b = 0; b < count; ++b)
                other.kv_length[b] = std::min(s.kv_length[(b + by) % count], other.kv_lengths[b]);
        });
    };
    add_lengths_of("kv_length of the next batch taken", 1);
    if (s.kv_length.size() > 2) add_lengths_of("kv_length of the batch before taken", s.kv_length.size() - 1);
    if (s.packed && s.query_lengths.size() > 1 && s.query_lengths != s.kv_lengths) {
        using Int = std::int64_t;
        const Int last = std::accumulate(s.kv_lengths.begin(), s.kv_lengths.end(), Int{0}) - 1;
        list.push_back({"keys of a sequence taken from where its queries begin (cu_seqlens_q)",
                        [columns = problem.columns, s, last](Int t, Int n, std::vector<ref::KeyColumn>& to) {
                            if (!columns(t, n, to)) return false;
                            Int queries = 0, keys = 0;
                            for (std::size_t b = 0; b < s.query_lengths.size() && queries + s.query_lengths[b] <= t; ++b)
                                queries += s.query_lengths[b], keys += s.kv_lengths[b];
                            for (ref::KeyColumn& column : to)
                                column.key = std::clamp<Int>(column.key - keys + queries, 0, last);
                            return true;
                        }});
    }
    add("mask not applied", s.mask.present, [](auto& other) { other.mask.present = false; });
    add("mask inverted", s.mask.present, [](auto& other) {
        for (auto& seen : other.mask.values) seen = seen == 0;
    });
    const bool is_square = s.mask.present && s.mask.shape[2] == s.mask.shape[3] && s.mask.shape[2] > 1;
    add("mask transposed", is_square, [](auto& other) {
        const auto n = static_cast<std::size_t>(other.mask.shape[2]);
        for (std::size_t at = 0; at < other.mask.values.size(); at += n * n)
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t j = 0; j < i; ++j)
                    std::swap(other.mask.values[at + i * n + j], other.mask.values[at + j * n + i]);
    });
    return list;
}

}  // namespace attncheck::properties
