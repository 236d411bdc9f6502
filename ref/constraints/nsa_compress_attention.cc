// The documented constraints of NsaCompressAttention. Source: contract.md, return values and
// decisions 4 and 7; nsa.md 6.8. Arguments may hold anything: every comparison comes before the
// arithmetic that relies on it.
//
// T1 query tokens, C compressed keys of all sequences   N1, N2 query and key heads   D, Dv head_dim
// and value_dim   S_q, Cmp, Sel queries, compressed keys and selection blocks of one sequence   K
// select_block_count
#include "ref/constraints/nsa_compress_attention.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "ref/constraints/examination.h"
#include "ref/constraints/nsa_limits.h"

namespace attncheck::ref {
namespace {

constexpr std::int64_t kMaxHeadDim = 768, kGroupLanes = 128;
constexpr std::int64_t kMaxStride = 64, kMaxCmpLength = 14000;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

using Arguments = CompressAttentionArguments;

/// Longest sequences, from accepted lengths.
struct Longest {
    std::int64_t queries = 0, cmp = 0, select_blocks = 0;
};

std::string at_index(const std::string& what, std::int64_t count, std::size_t index) {
    return what + std::to_string(count) + " at index " + std::to_string(index);
}

/// ceil(Cmp / (l' / d)) for accepted attributes.
std::int64_t select_blocks(const Arguments& a, std::int64_t cmp_length) {
    const std::int64_t keys = a.select_block_size / a.compress_stride;
    return (cmp_length + keys - 1) / keys;
}

class CompressAttentionExamination : public Examination {
public:
    explicit CompressAttentionExamination(const Arguments& arguments)
        : a_(arguments),
          inputs_{{a_.query, "query", "[T1,N1,D]"},
                  {a_.key, "key", "[C,N2,D]"},
                  {a_.value, "value", "[C,N2,Dv]"}},
          outputs_{{a_.softmax_max, "softmax_max", "[T1,N1,8]", Stores::fp32},
                   {a_.softmax_sum, "softmax_sum", "[T1,N1,8]", Stores::fp32},
                   {a_.attention_out, "attention_out", "[T1,N1,Dv]"},
                   {a_.topk_indices, "topk_indices", "[T1,N2,select_block_count]", Stores::int32}} {}

    Ruling run() {
        nothing_absent();
        layout(a_.input_layout, "input_layout");
        form({inputs_, outputs_}, inputs_.front(), {Dtype::fp16, Dtype::bf16});
        attributes();
        block_relations();
        query_key_value();
        products();
        length_arrays();
        masks();
        output_shapes();
        return ruling;
    }

private:
    void nothing_absent() {
        present(inputs_);
        present(a_.actual_seq_q_len.present, "actual_seq_q_len", "cumulative query lengths");
        present(a_.actual_cmp_seq_kv_len.present, "actual_cmp_seq_kv_len",
                "cumulative numbers of compressed keys");
        present(a_.actual_sel_seq_kv_len.present, "actual_sel_seq_kv_len",
                "cumulative numbers of selection blocks");
        present(a_.input_layout.has_value(), "input_layout", "\"TND\"");
        present(outputs_);
    }

    void multiple_of_16(const char* name, std::int64_t value, std::int64_t largest) {
        number(value >= kGranule && value <= largest && value % kGranule == 0, name, value,
               "a multiple of 16, 16.." + std::to_string(largest),
               side_of(value, kGranule, largest));
    }

    void attributes() {
        rule(is_finite_as_fp32(a_.scale_value), kInvalid, "scale_value",
             "is " + show(a_.scale_value), "finite as fp32");
        number(a_.head_num >= 1, "head_num", a_.head_num, "at least 1");
        number(a_.sparse_mode == 0 || a_.sparse_mode == 1, "sparse_mode", a_.sparse_mode, "0, 1");
        multiple_of_16("compress_block_size", a_.compress_block_size, kMaxBlock);
        multiple_of_16("compress_stride", a_.compress_stride, kMaxStride);
        multiple_of_16("select_block_size", a_.select_block_size, kMaxBlock);
        number_within("select_block_count", a_.select_block_count, 1, kMaxBlockCount);
    }

    void block_relations() {
        if (!accepted()) return;
        const std::string l = std::to_string(a_.compress_block_size);
        number(a_.compress_stride <= a_.compress_block_size, "compress_stride", a_.compress_stride,
               "at most compress_block_size = " + l);
        number(a_.select_block_size >= a_.compress_block_size, "select_block_size",
               a_.select_block_size, "at least compress_block_size = " + l);
        number(a_.select_block_size % a_.compress_stride == 0, "select_block_size",
               a_.select_block_size,
               "a multiple of compress_stride = " + std::to_string(a_.compress_stride));
    }

    void query_key_value() {
        if (!accepted()) return;
        const auto &q = a_.query.shape, &k = a_.key.shape, &v = a_.value.shape;
        extent(q[0] >= 1, "query", "T1", q[0], "T1 >= 1");
        extent(q[1] >= 1, "query", "N1", q[1], "N1 >= 1");
        extent_within("query", "D", q[2], 1, kMaxHeadDim);
        number(a_.head_num == q[1], "head_num", a_.head_num,
               "N1 of query = " + std::to_string(q[1]));
        extent(k[0] >= 1, "key", "C", k[0], "C >= 1");
        extent(k[1] >= 1, "key", "N2", k[1], "N2 >= 1");
        extent(k[2] == q[2], "key", "D", k[2], "D of query = " + std::to_string(q[2]));
        if (!accepted()) return;
        const std::int64_t group = q[1] / k[1];
        extent(q[1] % k[1] == 0, "key", "N2", k[1], "a divisor of N1 = " + std::to_string(q[1]));
        extent(group < kGroupLanes && kGroupLanes % std::max<std::int64_t>(group, 1) == 0, "key",
               "N2", k[1],
               "N1 / N2 one of 1, 2, 4, 8, 16, 32, 64, with N1 = " + std::to_string(q[1]));
        extent(v[0] == k[0], "value", "C", v[0], "C of key = " + std::to_string(k[0]));
        extent(v[1] == k[1], "value", "N2", v[1], "N2 of key = " + std::to_string(k[1]));
        extent_within("value", "Dv", v[2], 1, q[2]);
    }

    /// No tensor has more elements than int64 counts. D, 8 and K bound the last extents of all
    /// tensors with these rows and heads.
    void products() {
        if (!accepted()) return;
        const auto &q = a_.query.shape, &k = a_.key.shape;
        const std::int64_t query_last = std::max(q[2], kStatisticCopies);
        extent(q[1] <= kLargest / query_last && q[0] <= kLargest / (q[1] * query_last), "query",
               "T1", q[0], "T1 * N1 * max(D, 8) within int64");
        extent(k[1] <= kLargest / k[2] && k[0] <= kLargest / (k[1] * k[2]), "key", "C", k[0],
               "C * N2 * D within int64");
        const std::int64_t row = a_.select_block_count;
        if (!accepted()) return;
        extent(k[1] <= kLargest / row && q[0] <= kLargest / (k[1] * row), "query", "T1", q[0],
               "T1 * N2 * select_block_count within int64");
    }

    /// Cumulative lengths of the given name; check(index, length) for each.
    template <class Check>
    void length_array(const ArrayArgument& array, const char* name, const char* extent_name,
                      std::int64_t extent_value, Check&& check) {
        array_size(array.size >= 1, array, name, "size >= 1");
        array_size(array.size == a_.actual_seq_q_len.size, array, name,
                   "the size of actual_seq_q_len = " + std::to_string(a_.actual_seq_q_len.size));
        if (!accepted()) return;
        require_backed(array, name);
        lengths(array, name, extent_name, extent_value, check);
    }

    void length_arrays() {
        if (!accepted()) return;
        std::vector<std::int64_t> queries, cmp;
        length_array(a_.actual_seq_q_len, "actual_seq_q_len", "T1", a_.query.shape[0],
                     [&](std::size_t, std::int64_t length) {
                         queries.push_back(length);
                         longest_.queries = std::max(longest_.queries, length);
                     });
        length_array(a_.actual_cmp_seq_kv_len, "actual_cmp_seq_kv_len", "C", a_.key.shape[0],
                     [&](std::size_t b, std::int64_t length) {
                         cmp.push_back(length);
                         cmp_length(b, queries[b], length);
                     });
        if (!accepted()) return;
        select_lengths(cmp);
    }

    void cmp_length(std::size_t b, std::int64_t queries, std::int64_t length) {
        const char* const name = "actual_cmp_seq_kv_len";
        if (length > kMaxCmpLength)
            return rule(false, kInvalid, name,
                        at_index("has a sequence with compressed keys: ", length, b),
                        "at most " + std::to_string(kMaxCmpLength));
        const std::int64_t blocks = select_blocks(a_, length);
        if (blocks < a_.select_block_count && (queries > 0 || length > 0))
            rule(false, kInvalid, name,
                 at_index("has a sequence with selection blocks: ", blocks, b),
                 "at least select_block_count = " + std::to_string(a_.select_block_count) +
                     ", unless the sequence has neither queries nor compressed keys",
                 length == 0 ? "no keys" : queries == 0 ? "no queries" : "too few");
        longest_.cmp = std::max(longest_.cmp, length);
        longest_.select_blocks = std::max(longest_.select_blocks, blocks);
    }

    /// The sums of these are at most those of Cmp, so that they cannot overflow.
    void select_lengths(const std::vector<std::int64_t>& cmp) {
        const char* const name = "actual_sel_seq_kv_len";
        std::int64_t sum = 0;
        length_array(a_.actual_sel_seq_kv_len, name, "the selection blocks", kLargest,
                     [&](std::size_t b, std::int64_t) {
                         sum += select_blocks(a_, cmp[b]);
                         const std::int64_t value = a_.actual_sel_seq_kv_len.values[b];
                         rule(value == sum, kInvalid, name, at_index("has value ", value, b),
                              std::to_string(sum) +
                                  ", the sum of ceil(Cmp / (select_block_size / compress_stride))",
                              side_of(value, sum, sum));
                     });
    }

    void mask(const TensorArgument& t, const char* name, const char* extents,
              std::int64_t columns) {
        if (!t.present) return;
        rank(t, name, 2);
        dtype(t, name, {Dtype::boolean, Dtype::uint8});
        shape(t, name, extents, {longest_.queries, columns});
    }

    void masks() {
        if (!accepted()) return;
        mask(a_.atten_mask, "atten_mask", "[max S_q,max Cmp]", longest_.cmp);
        mask(a_.topk_mask, "topk_mask", "[max S_q,max Sel]", longest_.select_blocks);
    }

    void output_shapes() {
        if (!accepted()) return;
        const auto& q = a_.query.shape;
        shapes(outputs_, {{"T1", q[0]},
                          {"N1", q[1]},
                          {"N2", a_.key.shape[1]},
                          {"Dv", a_.value.shape[2]},
                          {"select_block_count", a_.select_block_count}});
    }

    const Arguments& a_;
    Operands inputs_, outputs_;
    Longest longest_;
};

}  // namespace

Ruling rule_nsa_compress_attention(const CompressAttentionArguments& arguments) {
    return CompressAttentionExamination(arguments).run();
}

}  // namespace attncheck::ref
