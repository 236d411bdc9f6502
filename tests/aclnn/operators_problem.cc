#include "operators_problem.h"

#include <algorithm>

#include "acl/acl.h"

namespace attncheck::aclnn {
namespace {

constexpr std::int32_t kFloat = ATTNCHECK_FLOAT32, kHalf = ATTNCHECK_FLOAT16;
constexpr std::uint8_t kUnwritten = 0xa5;

void put(float value, std::int32_t dtype, std::uint8_t* to) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    if (dtype == kHalf) bits = aclFloatToFloat16(value);
    if (dtype == ATTNCHECK_BFLOAT16) bits >>= 16;
    std::memcpy(to, &bits, static_cast<std::size_t>(size_of(dtype)));
}

}  // namespace

attncheck_tensor Storage::tensor(const Shape& shape, std::int32_t dtype, std::uint8_t fill) {
    attncheck_tensor made{};
    made.dtype = dtype;
    made.rank = static_cast<std::int32_t>(shape.size());
    std::int64_t stride = 1;
    for (int dim = made.rank - 1; dim >= 0; --dim) {
        made.shape[dim] = shape[static_cast<std::size_t>(dim)];
        made.strides[dim] = stride;
        stride *= made.shape[dim];
    }
    made.data = bytes(stride * size_of(dtype), fill);
    return made;
}

attncheck_tensor Storage::numbers(const Shape& shape, std::int32_t dtype) {
    const attncheck_tensor made = tensor(shape, dtype);
    std::uniform_int_distribution<int> sixteenths(-16, 16);
    for (std::int64_t i = 0; i < count_of(made); ++i) {
        put(static_cast<float>(sixteenths(random_)) / 16.0f, dtype,
            static_cast<std::uint8_t*>(made.data) + i * size_of(dtype));
    }
    return made;
}

attncheck_tensor Storage::marks(const Shape& shape, std::int32_t dtype) {
    const attncheck_tensor made = tensor(shape, dtype);
    auto* data = static_cast<std::uint8_t*>(made.data);
    std::generate_n(data, count_of(made), [&] { return random_() % 5 == 0; });
    return made;
}

attncheck_tensor Storage::random_bytes(const Shape& shape) {
    const attncheck_tensor made = tensor(shape, ATTNCHECK_UINT8);
    auto* data = static_cast<std::uint8_t*>(made.data);
    std::generate_n(data, count_of(made), [&] { return static_cast<std::uint8_t>(random_()); });
    return made;
}

attncheck_tensor Storage::integers(const Shape& shape, std::int32_t end) {
    const attncheck_tensor made = tensor(shape, ATTNCHECK_INT32);
    auto* data = static_cast<std::int32_t*>(made.data);
    std::uniform_int_distribution<std::int32_t> below(0, end - 1);
    std::generate_n(data, count_of(made), [&] { return below(random_); });
    return made;
}

attncheck_tensor Storage::positive(const Shape& shape) {
    const attncheck_tensor made = tensor(shape, kFloat);
    auto* data = static_cast<float*>(made.data);
    std::uniform_real_distribution<float> number(1.0f, 2.0f);
    // Eight equal copies: what the forward writes and every reader may rely on.
    for (std::int64_t i = 0; i < count_of(made); i += 8) std::fill_n(data + i, 8, number(random_));
    return made;
}

// Sequences of 20, 0 and 92 tokens: no block, no block, two blocks.
void fill(Problem<attncheck_nsa_compress_args>& problem) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    a.input = s.numbers({115, 3, 32}, kHalf);
    a.weight = s.numbers({48, 3}, kHalf);
    a.act_seq_len = s.array({20, 20, 112});
    a.layout = "TND";
    a.compress_block_size = 48;
    a.compress_stride = 32;
    a.act_seq_len_type = 0;
    a.output = s.tensor({2, 3, 32}, kHalf, kUnwritten);
}

void fill(Problem<attncheck_nsa_compress_grad_args>& problem) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    a.output_grad = s.numbers({2, 3, 32}, kHalf);
    a.input = s.numbers({115, 3, 32}, kHalf);
    a.weight = s.numbers({48, 3}, kHalf);
    a.act_seq_len = s.array({20, 20, 112});
    a.compress_block_size = 48;
    a.compress_stride = 32;
    a.act_seq_len_type = 0;
    a.layout = "TND";
    a.input_grad = s.tensor({115, 3, 32}, kHalf, kUnwritten);
    a.weight_grad = s.tensor({48, 3}, kHalf, kUnwritten);
}

namespace {

// 2 and 3 queries on 48 and 64 keys, blocks of 16, 3 of them per query, 2 heads per group.
template <class Args>
void fill_selected_inputs(Storage& s, Args& a) {
    a.query = s.numbers({5, 4, 192}, kHalf);
    a.key = s.numbers({112, 2, 192}, kHalf);
    a.value = s.numbers({112, 2, 128}, kHalf);
    a.topk_indices = s.integers({5, 2, 3}, 3);
    a.atten_mask = s.marks({3, 64}, ATTNCHECK_BOOL);
    a.actual_seq_q_len = s.array({2, 5});
    a.actual_seq_kv_len = s.array({48, 112});
    a.scale_value = 0.37;
    a.head_num = 4;
    a.input_layout = "TND";
    a.sparse_mode = 0;
    a.selected_block_size = 16;
    a.selected_block_count = 3;
}

}  // namespace

void fill(Problem<attncheck_nsa_selected_attention_args>& problem) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    fill_selected_inputs(s, a);
    a.softmax_max = s.tensor({5, 4, 8}, kFloat, kUnwritten);
    a.softmax_sum = s.tensor({5, 4, 8}, kFloat, kUnwritten);
    a.attention_out = s.tensor({5, 4, 128}, kHalf, kUnwritten);
}

void fill(Problem<attncheck_nsa_selected_attention_grad_args>& problem) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    fill_selected_inputs(s, a);
    a.attention_out = s.numbers({5, 4, 128}, kHalf);
    a.attention_out_grad = s.numbers({5, 4, 128}, kHalf);
    a.softmax_max = s.positive({5, 4, 8});
    a.softmax_sum = s.positive({5, 4, 8});
    a.dq = s.tensor({5, 4, 192}, kHalf, kUnwritten);
    a.dk = s.tensor({112, 2, 192}, kHalf, kUnwritten);
    a.dv = s.tensor({112, 2, 128}, kHalf, kUnwritten);
}

// 7 and 33 queries on 9 and 21 compressed keys: 3 and 6 selection blocks, of which 2 are taken.
void fill(Problem<attncheck_nsa_compress_attention_args>& problem) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    a.query = s.numbers({40, 4, 40}, kHalf);
    a.key = s.numbers({30, 2, 40}, kHalf);
    a.value = s.numbers({30, 2, 24}, kHalf);
    a.atten_mask = s.marks({33, 21}, ATTNCHECK_BOOL);
    a.topk_mask = s.marks({33, 6}, ATTNCHECK_UINT8);
    a.actual_seq_q_len = s.array({7, 40});
    a.actual_cmp_seq_kv_len = s.array({9, 30});
    a.actual_sel_seq_kv_len = s.array({3, 9});
    a.scale_value = 0.37;
    a.head_num = 4;
    a.input_layout = "TND";
    a.sparse_mode = 1;
    a.compress_block_size = 32;
    a.compress_stride = 16;
    a.select_block_size = 64;
    a.select_block_count = 2;
    a.softmax_max = s.tensor({40, 4, 8}, kFloat, kUnwritten);
    a.softmax_sum = s.tensor({40, 4, 8}, kFloat, kUnwritten);
    a.attention_out = s.tensor({40, 4, 24}, kHalf, kUnwritten);
    a.topk_indices = s.tensor({40, 2, 2}, ATTNCHECK_INT32, kUnwritten);
}

namespace {

// Two sequences of 6 (padded), or of 3 and 6 in 10 rows (packed); 4 query heads on 2.
struct FlashShapes {
    bool packed;

    Shape rows(std::int64_t heads, std::int64_t dim) const {
        return packed ? Shape{10, heads, dim} : Shape{2, 6, heads, dim};
    }
    Shape statistics() const { return packed ? Shape{10, 4, 8} : Shape{2, 4, 6, 8}; }
    std::int64_t pairs() const { return packed ? 4 * (3 * 3 + 6 * 6) : 2 * 4 * 6 * 6; }
};

// Everything but the bias, whose field the directions name differently.
template <class Args>
void fill_flash_inputs(Storage& s, const FlashOptions& options, Args& a) {
    const FlashShapes shapes{options.packed};
    a.query = s.numbers(shapes.rows(4, 24), options.dtype);
    a.key = s.numbers(shapes.rows(2, 24), options.dtype);
    a.value = s.numbers(shapes.rows(2, 16), options.dtype);
    a.atten_mask = s.marks({6, 6}, ATTNCHECK_UINT8);
    a.prefix = s.array({1, 2});
    if (options.packed) {
        a.actual_seq_q_len = s.array({3, 9});
        a.actual_seq_kv_len = s.array({3, 9});
    }
    a.scale_value = 0.37;
    a.keep_prob = 1.0;
    a.pre_tokens = 5;
    a.next_tokens = 3;
    a.head_num = 4;
    a.input_layout = options.packed ? "TND" : "BSND";
    a.*kInertMember<Args> = 7;
    a.sparse_mode = 0;
    a.pse_type = 1;
    if (options.rope) {
        a.query_rope = s.numbers({10, 4, 16}, options.dtype);
        a.key_rope = s.numbers({10, 2, 16}, options.dtype);
        a.q_start_idx = s.array({6});  // without slopes neither counts
        a.kv_start_idx = s.array({9});
        return;
    }
    a.drop_mask = s.random_bytes({(shapes.pairs() + 7) / 8});
    a.keep_prob = 0.75;
    if (!options.chosen_bias) return;
    a.q_start_idx = s.array({6});
    a.kv_start_idx = s.array({9});
    a.pse_type = 2;
}

attncheck_tensor bias(Storage& s, const FlashOptions& options) {
    if (options.rope) return {};
    if (options.chosen_bias) return s.numbers({4}, kFloat);
    if (!options.packed) return s.numbers({2, 4, 6, 6}, options.dtype);
    return s.numbers({FlashShapes{true}.pairs()}, options.dtype);
}

}  // namespace

void fill(Problem<attncheck_flash_attention_score_args>& problem, const FlashOptions& options) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    const FlashShapes shapes{options.packed};
    fill_flash_inputs(s, options, a);
    a.real_shift = bias(s, options);
    a.softmax_out_layout = options.same_as_input ? "same_as_input" : "";
    a.softmax_max = s.tensor(shapes.statistics(), kFloat, kUnwritten);
    a.softmax_sum = s.tensor(shapes.statistics(), kFloat, kUnwritten);
    a.attention_out = s.tensor(shapes.rows(4, 16), options.dtype, kUnwritten);
}

void fill(Problem<attncheck_flash_attention_score_grad_args>& problem,
          const FlashOptions& options) {
    Storage& s = problem.storage;
    auto& a = problem.args;
    const FlashShapes shapes{options.packed};
    fill_flash_inputs(s, options, a);
    a.pse_shift = bias(s, options);
    a.softmax_in_layout = options.same_as_input ? "same_as_input" : "";
    a.dy = s.numbers(shapes.rows(4, 16), options.dtype);
    a.attention_in = s.numbers(shapes.rows(4, 16), options.dtype);
    a.softmax_max = s.positive(shapes.statistics());
    a.softmax_sum = s.positive(shapes.statistics());
    a.dq = s.tensor(shapes.rows(4, 24), options.dtype, kUnwritten);
    a.dk = s.tensor(shapes.rows(2, 24), options.dtype, kUnwritten);
    a.dv = s.tensor(shapes.rows(2, 16), options.dtype, kUnwritten);
    if (!options.rope) return;
    a.dq_rope = s.tensor({10, 4, 16}, options.dtype, kUnwritten);
    a.dk_rope = s.tensor({10, 2, 16}, options.dtype, kUnwritten);
}

}  // namespace attncheck::aclnn
