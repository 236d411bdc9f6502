// What a kernel may take the pages of a cache for.
#include <utility>

#include "properties/laws/attention_parts.h"
#include "properties/operators/attention_decode/case.h"
#include "properties/operators/attention_decode/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The columns of the problem but for positions from ends[b] on. Rows of the cache are one of a sequence's or of several.
ref::ColumnLister without_ends(const AttentionProblem& problem, const DecodeParts& parts, const std::vector<Int>& ends) {
    const ref::DecodeShape& s = parts.shape;
    std::vector<std::vector<char>> left_out(ends.size());
    for (std::size_t b = 0; b < ends.size(); ++b) {
        left_out[b].resize(static_cast<std::size_t>(s.pages * s.page_size));
        for (Int j = ends[b]; j < s.kv_lengths[b]; ++j) left_out[b][static_cast<std::size_t>(parts.row_of(b, j))] = 1;
    }
    return [columns = problem.columns, left_out = std::move(left_out), queries = s.queries](
               Int t, Int n, std::vector<ref::KeyColumn>& to) {
        if (!columns(t, n, to)) return false;
        const std::vector<char>& out = left_out[static_cast<std::size_t>(t / queries)];
        std::erase_if(to, [&](const ref::KeyColumn& column) { return out[static_cast<std::size_t>(column.key)] != 0; });
        return true;
    };
}

}  // namespace

std::vector<Misreading> decode_misreadings(const AttentionProblem& problem) {
    const auto& parts = extras_of<DecodeParts>(problem);
    const ref::DecodeShape& s = parts.shape;
    // The page size of the case. The tiers put keys in order, and each of them is a page there.
    const Int page = spec_with(parts.fields, decode_description()).number("page");
    std::vector<Misreading> list;
    const auto add = [&](const char* text, const auto& end_of) {
        std::vector<Int> ends;
        for (const Int length : s.kv_lengths) ends.push_back(end_of(length));
        if (ends != s.kv_lengths) list.push_back({text, without_ends(problem, parts, ends)});
    };
    add("the last page of each sequence left out", [&](Int length) { return length == 0 ? 0 : (length - 1) / page * page; });
    add("the partly filled last page of each sequence left out", [&](Int length) { return length / page * page; });
    add("the last key of each sequence left out", [&](Int length) { return length == 0 ? 0 : length - 1; });
    return list;
}

}  // namespace attncheck::properties
