// The NSA module over operators that the caller passes: see include/attncheck/nsa_module.h for the
// mathematics, plan.h for the padding.
//
// Sums that the module itself makes (gates, the gradient of query, tied keys) are taken in binary64
// and rounded to fp32, then to the tensor's type, once.
#include <cmath>
#include <memory>
#include <new>

#include "impl/operators/nsa_module/state.h"

namespace attncheck::impl::module {
namespace {

constexpr std::int64_t kMaskOfBand = 2048;

std::string& message() {
    thread_local std::string text;
    return text;
}

/// Token s sees compressed block j when the block ends at s or before: hidden is j d + l - 1 > s.
Array compress_mask(const Plan& plan) {
    const std::int64_t rows = plan.sequence.longest(), columns = plan.compressed.longest();
    Array mask(ATTNCHECK_BOOL, {rows, columns});
    for (std::int64_t s = 0; s < rows; ++s)
        for (std::int64_t j = 0; j < columns; ++j)
            mask.data<std::uint8_t>()[s * columns + j] = j * plan.stride + plan.block - 1 > s;
    return mask;
}

/// Block 0, the block of token s and the one before it (nsa.md 10.3).
Array forced_blocks(const Plan& plan) {
    const std::int64_t rows = plan.sequence.longest(), columns = plan.selectable.longest();
    Array mask(ATTNCHECK_BOOL, {rows, columns});
    for (std::int64_t s = 0; s < rows; ++s)
        for (std::int64_t j = 0; j < columns; ++j) {
            const std::int64_t own = s / plan.select_block;
            mask.data<std::uint8_t>()[s * columns + j] = j == 0 || j == own || j + 1 == own;
        }
    return mask;
}

/// Keys below position s of S, whatever else: what NsaSelectedAttention asks for in mode 2.
Array causal_mask(const Plan& plan) {
    const std::int64_t rows = plan.sequence.longest(), columns = plan.padded.longest();
    Array mask(ATTNCHECK_BOOL, {rows, columns});
    for (std::int64_t s = 0; s < rows; ++s)
        for (std::int64_t u = s + 1; u < columns; ++u)
            mask.data<std::uint8_t>()[s * columns + u] = 1;
    return mask;
}

}  // namespace

Array padded_rows(const Plan& plan, const Lengths& to, const attncheck_tensor& from) {
    const Elements source(from);
    Array rows(plan.dtype, {to.total(), from.shape[1], from.shape[2]});
    const Elements target(rows.tensor());
    for (std::size_t b = 0; b < to.of.size(); ++b)
        for (std::int64_t s = 0; s < plan.sequence.of[b]; ++s)
            for (std::int64_t n = 0; n < from.shape[1]; ++n)
                for (std::int64_t c = 0; c < from.shape[2]; ++c)
                    target.set(to.first(b) + s, n, c, source.get(plan.sequence.first(b) + s, n, c));
    return rows;
}

const Array& band_mask() {
    static const Array mask = [] {
        Array all(ATTNCHECK_BOOL, {kMaskOfBand, kMaskOfBand});
        auto* const bytes = all.data<std::uint8_t>();
        for (std::int64_t r = 0; r < kMaskOfBand; ++r)
            for (std::int64_t c = r + 1; c < kMaskOfBand; ++c) bytes[r * kMaskOfBand + c] = 1;
        return all;
    }();
    return mask;
}

void State::run_compress(const attncheck_nsa_operators& operators,
                         const attncheck_nsa_module_args& args) {
    const auto compress = [&](const attncheck_tensor& tokens, const attncheck_tensor& weight) {
        const Array padded = padded_rows(plan_, plan_.padded, tokens);
        Array rows(plan_.dtype, {plan_.compressed.total(), tokens.shape[1], tokens.shape[2]});
        attncheck_nsa_compress_args a{};
        a.input = padded.tensor();
        a.weight = weight;
        a.act_seq_len = plan_.padded.array();
        a.layout = kLayout;
        a.compress_block_size = plan_.block;
        a.compress_stride = plan_.stride;
        a.output = rows.tensor();
        call(operators, "nsa_compress", operators.nsa_compress, a);
        return rows;
    };
    key_blocks_ = compress(args.key_compress, args.key_weight);
    value_blocks_ = compress(args.value_compress, args.value_weight);
}

void State::run_compress_attention(const attncheck_nsa_operators& operators,
                                   const attncheck_nsa_module_args& args) {
    compress_mask_ = compress_mask(plan_);
    blocks_ = Array(ATTNCHECK_INT32, {plan_.tokens, plan_.kv_heads, plan_.select_count});
    const Array forced = args.force_blocks ? forced_blocks(plan_) : Array();
    attncheck_nsa_compress_attention_args a{};
    a.query = args.query;
    a.key = key_blocks_.tensor();
    a.value = value_blocks_.tensor();
    a.atten_mask = compress_mask_.tensor();
    a.topk_mask = forced.tensor();
    a.actual_seq_q_len = plan_.sequence.array();
    a.actual_cmp_seq_kv_len = plan_.compressed.array();
    a.actual_sel_seq_kv_len = plan_.selectable.array();
    a.scale_value = args.scale_value;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.sparse_mode = 1;
    a.compress_block_size = plan_.block;
    a.compress_stride = plan_.stride;
    a.select_block_size = plan_.select_block;
    a.select_block_count = plan_.select_count;
    a.softmax_max = result_[kCompress].row_max.tensor();
    a.softmax_sum = result_[kCompress].row_sum.tensor();
    a.attention_out = result_[kCompress].out.tensor();
    a.topk_indices = blocks_.tensor();
    call(operators, "nsa_compress_attention", operators.nsa_compress_attention, a);
}

void State::run_selected_attention(const attncheck_nsa_operators& operators,
                                   const attncheck_nsa_module_args& args) {
    select_key_ = padded_rows(plan_, plan_.padded, key_of(args, kSelect));
    select_value_ = padded_rows(plan_, plan_.padded, value_of(args, kSelect));
    causal_mask_ = causal_mask(plan_);
    attncheck_nsa_selected_attention_args a{};
    a.query = args.query;
    a.key = select_key_.tensor();
    a.value = select_value_.tensor();
    a.topk_indices = blocks_.tensor();
    a.atten_mask = causal_mask_.tensor();
    a.actual_seq_q_len = plan_.sequence.array();
    a.actual_seq_kv_len = plan_.padded.array();
    a.scale_value = args.scale_value;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.sparse_mode = 2;
    a.selected_block_size = plan_.select_block;
    a.selected_block_count = plan_.select_count;
    a.softmax_max = result_[kSelect].row_max.tensor();
    a.softmax_sum = result_[kSelect].row_sum.tensor();
    a.attention_out = result_[kSelect].out.tensor();
    call(operators, "nsa_selected_attention", operators.nsa_selected_attention, a);
}

void State::run_window(const attncheck_nsa_operators& operators,
                       const attncheck_nsa_module_args& args) {
    attncheck_flash_attention_score_args a{};
    a.query = args.query;
    a.key = key_of(args, kWindow);
    a.value = value_of(args, kWindow);
    a.atten_mask = band_mask().tensor();
    a.actual_seq_q_len = a.actual_seq_kv_len = plan_.sequence.array();
    a.scale_value = args.scale_value;
    a.keep_prob = 1;
    a.pre_tokens = plan_.window - 1;
    a.next_tokens = 0;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.sparse_mode = 4;
    a.pse_type = 1;
    a.softmax_out_layout = "";
    a.softmax_max = result_[kWindow].row_max.tensor();
    a.softmax_sum = result_[kWindow].row_sum.tensor();
    a.attention_out = result_[kWindow].out.tensor();
    call(operators, "flash_attention_score", operators.flash_attention_score, a);
}

void State::combine(const attncheck_nsa_module_args& args) const {
    const Elements out(args.attention_out);
    const Elements branches[kBranches] = {Elements(result_[kCompress].out.tensor()),
                                          Elements(result_[kSelect].out.tensor()),
                                          Elements(result_[kWindow].out.tensor())};
    for_each_query([&](std::size_t b, std::int64_t s, std::int64_t t, std::int64_t h) {
        double gates[kBranches];
        for (int k = 0; k < kBranches; ++k) gates[k] = gate(args, k, b, s, h);
        for (std::int64_t c = 0; c < plan_.value_dim; ++c) {
            double sum = 0;
            for (int k = 0; k < kBranches; ++k)  // a closed gate does not read its branch
                if (gates[k] != 0) sum += gates[k] * branches[k].get(t, h, c);
            out.set(t, h, c, sum);
        }
    });
}

namespace {

/// No exception leaves the C interface.
template <class Work>
int guarded(const Work& work) noexcept {
    try {
        work();
        return ATTNCHECK_OK;
    } catch (const Failure& failure) {
        message() = std::string("nsa_module: ") + failure.what();
        return failure.status;
    } catch (const std::bad_alloc&) {
        message() = "nsa_module: out of memory";
    } catch (const std::exception& failure) {
        message() = std::string("nsa_module: ") + failure.what();
    }
    return ATTNCHECK_ERR_INTERNAL;
}

}  // namespace
}  // namespace attncheck::impl::module

struct attncheck_nsa_module_state {
    attncheck::impl::module::State state;
};

extern "C" {

int attncheck_nsa_module(const attncheck_nsa_operators* operators,
                         const attncheck_nsa_module_args* args,
                         attncheck_nsa_module_state** state) {
    namespace module = attncheck::impl::module;
    return module::guarded([&] {
        if (!operators || !args)
            throw module::Failure(ATTNCHECK_ERR_NULLPTR,
                                  "the operators or the arguments are NULL, both are required");
        auto forward = std::make_unique<attncheck_nsa_module_state>(
            attncheck_nsa_module_state{module::State(*operators, *args)});
        if (state) *state = forward.release();
    });
}

int attncheck_nsa_module_grad(const attncheck_nsa_operators* operators,
                              const attncheck_nsa_module_args* args,
                              const attncheck_nsa_module_state* state,
                              const attncheck_nsa_module_grad_args* grads) {
    namespace module = attncheck::impl::module;
    return module::guarded([&] {
        if (!operators || !args || !state || !grads)
            throw module::Failure(
                ATTNCHECK_ERR_NULLPTR,
                "the operators, arguments, state or gradients are NULL, all are required");
        state->state.backward(*operators, *args, *grads);
    });
}

void attncheck_nsa_module_free(attncheck_nsa_module_state* state) { delete state; }

attncheck_tensor attncheck_nsa_module_blocks(const attncheck_nsa_module_state* state) {
    return state->state.blocks();
}

const char* attncheck_nsa_module_message(void) {
    return attncheck::impl::module::message().c_str();
}

}  // extern "C"
