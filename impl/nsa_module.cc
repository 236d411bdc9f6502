// The NSA module over operators that are handed in: see include/attncheck/nsa_module.h for the
// mathematics, nsa_module_plan.h for the padding.
//
// Sums that the module itself makes (gates, the gradient of query, tied keys) are taken in binary64
// and rounded to fp32, then to the tensor's type, once.
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include "impl/nsa_module_arrays.h"
#include "impl/nsa_module_plan.h"

namespace attncheck::impl::module {
namespace {

enum Branch { kCompress, kSelect, kWindow };
constexpr int kBranches = 3;
constexpr std::int64_t kStatisticLanes = 8, kMaskOfBand = 2048;
constexpr const char* kLayout = "TND";

std::string& message() {
    thread_local std::string text;
    return text;
}

/// Calls one of the operators; whatever it returns but 0 ends the module's call.
template <class Args>
void call(const char* name, int (*entry)(const Args*), const Args& args) {
    if (!entry)
        throw Failure(ATTNCHECK_ERR_NULLPTR,
                      "the operator " + std::string(name) + " is NULL, it is required");
    const int status = entry(&args);
    if (status != ATTNCHECK_OK)
        throw Failure(status, std::string(name) + " returned " + std::to_string(status));
}

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

/// Output and softmax statistics of a branch, the latter in the order in which its operator writes.
struct BranchResult {
    Array out, row_max, row_sum;

    explicit BranchResult(const Plan& p)
        : out(p.dtype, {p.tokens, p.query_heads, p.value_dim}),
          row_max(ATTNCHECK_FLOAT32, {p.tokens, p.query_heads, kStatisticLanes}),
          row_sum(row_max) {}
    BranchResult() = default;
};

/// Rows of the sequences of `from` (token rows of the module) into a padded array.
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

/// mask[r][c] = c > r, which band mode asks for and need not read.
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

/// What one forward knows, and the calls of both directions.
class State {
public:
    State(const attncheck_nsa_operators& operators, const attncheck_nsa_module_args& args)
        : plan_(make_plan(args)) {
        Elements(args.attention_out).clear();
        if (plan_.sequence.total() == 0) return;
        for (int branch = 0; branch < kBranches; ++branch) result_[branch] = BranchResult(plan_);
        run_compress(operators, args);
        run_compress_attention(operators, args);
        run_selected_attention(operators, args);
        run_window(operators, args);
        combine(args);
    }

    void backward(const attncheck_nsa_operators& operators, const attncheck_nsa_module_args& args,
                  const attncheck_nsa_module_grad_args& grads) const;

    attncheck_tensor blocks() const { return blocks_.tensor(); }

private:
    const attncheck_tensor& key_of(const attncheck_nsa_module_args& args, Branch branch) const {
        if (branch == kSelect && !plan_.select_tied) return args.key_select;
        if (branch == kWindow && !plan_.window_tied) return args.key_window;
        return args.key_compress;
    }
    const attncheck_tensor& value_of(const attncheck_nsa_module_args& args, Branch branch) const {
        if (branch == kSelect && !plan_.select_tied) return args.value_select;
        if (branch == kWindow && !plan_.window_tied) return args.value_window;
        return args.value_compress;
    }

    /// The gate of (token row, head); 0 in the compress branch where no block is visible.
    double gate(const attncheck_nsa_module_args& args, int branch, std::size_t sequence,
                std::int64_t s, std::int64_t head) const {
        if (branch == kCompress && s < plan_.block - 1) return 0;
        return sigmoid(
            Elements(args.gate_logits).get(plan_.sequence.first(sequence) + s, head, branch));
    }

    /// visit(sequence, position, row, head) for every query of a sequence.
    template <class Visit>
    void for_each_query(Visit&& visit) const {
        for (std::size_t b = 0; b < plan_.sequence.of.size(); ++b)
            for (std::int64_t s = 0; s < plan_.sequence.of[b]; ++s)
                for (std::int64_t h = 0; h < plan_.query_heads; ++h)
                    visit(b, s, plan_.sequence.first(b) + s, h);
    }

    void run_compress(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void run_compress_attention(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void run_selected_attention(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void run_window(const attncheck_nsa_operators&, const attncheck_nsa_module_args&);
    void combine(const attncheck_nsa_module_args&) const;

    struct AttentionGrads {
        Array query, key, value;
        AttentionGrads(const Plan& p, std::int64_t key_rows)
            : query(p.dtype, {p.tokens, p.query_heads, p.head_dim}),
              key(p.dtype, {key_rows, p.kv_heads, p.head_dim}),
              value(p.dtype, {key_rows, p.kv_heads, p.value_dim}) {}
    };
    /// Gradient of the compressed rows, with the statistics as NsaCompressAttention wrote them.
    AttentionGrads compress_attention_grad(const attncheck_nsa_operators&,
                                           const attncheck_nsa_module_args&, const Array& dy) const;
    AttentionGrads selected_attention_grad(const attncheck_nsa_operators&,
                                           const attncheck_nsa_module_args&, const Array& dy) const;
    AttentionGrads window_grad(const attncheck_nsa_operators&, const attncheck_nsa_module_args&,
                               const Array& dy) const;
    /// Writes the gradient of the weights and returns that of the tokens, padded by grad_padded.
    Array compress_grad(const attncheck_nsa_operators&, const attncheck_tensor& tokens,
                        const attncheck_tensor& weight, const Array& output_grad,
                        const attncheck_tensor& weight_grad) const;
    attncheck_flash_attention_score_grad_args flash_grad_args(const attncheck_nsa_module_args&,
                                                              Branch branch, const Array& dy,
                                                              const AttentionGrads& out) const;
    std::array<Array, kBranches> gate_gradients(const attncheck_nsa_module_args&,
                                                const attncheck_nsa_module_grad_args&) const;

    Plan plan_;
    Array key_blocks_, value_blocks_;    ///< compressed rows [C,N2,D], [C,N2,Dv]
    Array select_key_, select_value_;    ///< padded rows of the select branch
    Array compress_mask_, causal_mask_;  ///< what hides
    Array blocks_;                       ///< int32 [T,N2,K]
    BranchResult result_[kBranches];
};

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
        call("nsa_compress", operators.nsa_compress, a);
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
    call("nsa_compress_attention", operators.nsa_compress_attention, a);
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
    call("nsa_selected_attention", operators.nsa_selected_attention, a);
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
    call("flash_attention_score", operators.flash_attention_score, a);
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

/// dO_branch = g dO, and dz = g (1 - g) <dO, O_branch>.
std::array<Array, kBranches> State::gate_gradients(
    const attncheck_nsa_module_args& args, const attncheck_nsa_module_grad_args& grads) const {
    std::array<Array, kBranches> branch_grads;
    const Elements dy(grads.attention_out_grad), dz(grads.gate_logits_grad);
    for (int k = 0; k < kBranches; ++k) {
        branch_grads[k] = Array(plan_.dtype, {plan_.tokens, plan_.query_heads, plan_.value_dim});
        const Elements out(result_[k].out.tensor()), grad(branch_grads[k].tensor());
        for_each_query([&](std::size_t b, std::int64_t s, std::int64_t t, std::int64_t h) {
            const double g = gate(args, k, b, s, h);
            double dot = 0;
            for (std::int64_t c = 0; c < plan_.value_dim && g != 0; ++c) {
                const double dout = dy.get(t, h, c);
                grad.set(t, h, c, g * dout);
                dot += dout * out.get(t, h, c);
            }
            if (g != 0) dz.set(t, h, k, g * (1 - g) * dot);
        });
    }
    return branch_grads;
}

attncheck_flash_attention_score_grad_args State::flash_grad_args(
    const attncheck_nsa_module_args& args, Branch branch, const Array& dy,
    const AttentionGrads& out) const {
    attncheck_flash_attention_score_grad_args a{};
    a.query = args.query;
    a.dy = dy.tensor();
    a.softmax_max = result_[branch].row_max.tensor();
    a.softmax_sum = result_[branch].row_sum.tensor();
    a.attention_in = result_[branch].out.tensor();
    a.actual_seq_q_len = plan_.sequence.array();
    a.scale_value = args.scale_value;
    a.keep_prob = 1;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.pse_type = 1;
    a.softmax_in_layout = "";
    a.dq = out.query.tensor();
    a.dk = out.key.tensor();
    a.dv = out.value.tensor();
    return a;
}

State::AttentionGrads State::compress_attention_grad(const attncheck_nsa_operators& operators,
                                                     const attncheck_nsa_module_args& args,
                                                     const Array& dy) const {
    AttentionGrads out(plan_, plan_.compressed.total());
    auto a = flash_grad_args(args, kCompress, dy, out);
    a.key = key_blocks_.tensor();
    a.value = value_blocks_.tensor();
    a.atten_mask = compress_mask_.tensor();
    a.actual_seq_kv_len = plan_.compressed.array();
    a.pre_tokens = a.next_tokens = std::numeric_limits<std::int32_t>::max();
    a.sparse_mode = 1;
    call("flash_attention_score_grad", operators.flash_attention_score_grad, a);
    return out;
}

State::AttentionGrads State::selected_attention_grad(const attncheck_nsa_operators& operators,
                                                     const attncheck_nsa_module_args& args,
                                                     const Array& dy) const {
    AttentionGrads out(plan_, plan_.padded.total());
    attncheck_nsa_selected_attention_grad_args a{};
    a.query = args.query;
    a.key = select_key_.tensor();
    a.value = select_value_.tensor();
    a.attention_out = result_[kSelect].out.tensor();
    a.attention_out_grad = dy.tensor();
    a.softmax_max = result_[kSelect].row_max.tensor();
    a.softmax_sum = result_[kSelect].row_sum.tensor();
    a.topk_indices = blocks_.tensor();
    a.actual_seq_q_len = plan_.sequence.array();
    a.actual_seq_kv_len = plan_.padded.array();
    a.atten_mask = causal_mask_.tensor();
    a.scale_value = args.scale_value;
    a.selected_block_size = plan_.select_block;
    a.selected_block_count = plan_.select_count;
    a.head_num = plan_.query_heads;
    a.input_layout = kLayout;
    a.sparse_mode = 2;
    a.dq = out.query.tensor();
    a.dk = out.key.tensor();
    a.dv = out.value.tensor();
    call("nsa_selected_attention_grad", operators.nsa_selected_attention_grad, a);
    return out;
}

State::AttentionGrads State::window_grad(const attncheck_nsa_operators& operators,
                                         const attncheck_nsa_module_args& args,
                                         const Array& dy) const {
    AttentionGrads out(plan_, plan_.tokens);
    auto a = flash_grad_args(args, kWindow, dy, out);
    a.key = key_of(args, kWindow);
    a.value = value_of(args, kWindow);
    a.atten_mask = band_mask().tensor();
    a.actual_seq_kv_len = plan_.sequence.array();
    a.pre_tokens = plan_.window - 1;
    a.sparse_mode = 4;
    call("flash_attention_score_grad", operators.flash_attention_score_grad, a);
    return out;
}

Array State::compress_grad(const attncheck_nsa_operators& operators, const attncheck_tensor& tokens,
                           const attncheck_tensor& weight, const Array& output_grad,
                           const attncheck_tensor& weight_grad) const {
    const Lengths lengths = plan_.grad_padded();
    const Array input = padded_rows(plan_, lengths, tokens);
    Array input_grad(plan_.dtype, {lengths.total(), tokens.shape[1], tokens.shape[2]}),
        longer(plan_.dtype, {plan_.grad_block(), plan_.kv_heads}), longer_grad = longer;
    const auto as_rows = [](attncheck_tensor tensor) {  // [l,N2] as [l,N2,1]
        tensor.rank = 3, tensor.shape[2] = 1, tensor.strides[2] = 1;
        return Elements(tensor);
    };
    for (std::int64_t r = 0; r < plan_.block; ++r)
        for (std::int64_t n = 0; n < plan_.kv_heads; ++n)
            as_rows(longer.tensor()).set(r, n, 0, as_rows(weight).get(r, n, 0));
    attncheck_nsa_compress_grad_args a{};
    a.output_grad = output_grad.tensor();
    a.input = input.tensor();
    a.weight = longer.tensor();
    a.act_seq_len = lengths.array();
    a.compress_block_size = plan_.grad_block();
    a.compress_stride = plan_.stride;
    a.layout = kLayout;
    a.input_grad = input_grad.tensor();
    a.weight_grad = longer_grad.tensor();
    call("nsa_compress_grad", operators.nsa_compress_grad, a);
    for (std::int64_t r = 0; r < plan_.block; ++r)
        for (std::int64_t n = 0; n < plan_.kv_heads; ++n)
            as_rows(weight_grad).set(r, n, 0, as_rows(longer_grad.tensor()).get(r, n, 0));
    return input_grad;
}

namespace {

/// Rows of token gradients, and where each sequence begins in them.
struct Part {
    const Array* rows;
    const Lengths* lengths;
};

/// Writes the sum of the parts to the rows of the sequences; the rows beyond stay 0.
void add_up(const Plan& plan, const std::vector<Part>& parts, const attncheck_tensor& to) {
    const Elements target(to);
    std::vector<Elements> sources;
    for (const Part& part : parts) sources.emplace_back(part.rows->tensor());
    for (std::size_t b = 0; b < plan.sequence.of.size(); ++b)
        for (std::int64_t s = 0; s < plan.sequence.of[b]; ++s)
            for (std::int64_t n = 0; n < target.extent(1); ++n)
                for (std::int64_t c = 0; c < target.extent(2); ++c) {
                    double sum = 0;
                    for (std::size_t k = 0; k < parts.size(); ++k)
                        sum += sources[k].get(parts[k].lengths->first(b) + s, n, c);
                    target.set(plan.sequence.first(b) + s, n, c, sum);
                }
}

/// All gradients become 0.
void clear(const attncheck_nsa_module_grad_args& grads) {
    for (attncheck_tensor tensor :
         {grads.query_grad, grads.key_compress_grad, grads.value_compress_grad,
          grads.key_select_grad, grads.value_select_grad, grads.key_window_grad,
          grads.value_window_grad, grads.key_weight_grad, grads.value_weight_grad,
          grads.gate_logits_grad}) {
        if (!tensor.data) continue;
        if (tensor.rank == 2) tensor.shape[2] = 1, tensor.strides[2] = 1;
        Elements(tensor).clear();
    }
}

}  // namespace

void State::backward(const attncheck_nsa_operators& operators,
                     const attncheck_nsa_module_args& args,
                     const attncheck_nsa_module_grad_args& grads) const {
    check_gradients(plan_, args, grads);
    clear(grads);
    if (plan_.sequence.total() == 0) return;
    const auto dy = gate_gradients(args, grads);
    const AttentionGrads compress = compress_attention_grad(operators, args, dy[kCompress]),
                         select = selected_attention_grad(operators, args, dy[kSelect]),
                         window = window_grad(operators, args, dy[kWindow]);
    const Array key = compress_grad(operators, args.key_compress, args.key_weight, compress.key,
                                    grads.key_weight_grad),
                value = compress_grad(operators, args.value_compress, args.value_weight,
                                      compress.value, grads.value_weight_grad);

    const Lengths from_compress = plan_.grad_padded();
    std::vector<Part> keys{{&key, &from_compress}}, values{{&value, &from_compress}};
    const auto hand_out = [&](bool tied, const AttentionGrads& branch, const Lengths& lengths,
                              const attncheck_tensor& key_grad,
                              const attncheck_tensor& value_grad) {
        if (tied) {
            keys.push_back({&branch.key, &lengths});
            values.push_back({&branch.value, &lengths});
        } else {
            add_up(plan_, {{&branch.key, &lengths}}, key_grad);
            add_up(plan_, {{&branch.value, &lengths}}, value_grad);
        }
    };
    hand_out(plan_.select_tied, select, plan_.padded, grads.key_select_grad,
             grads.value_select_grad);
    hand_out(plan_.window_tied, window, plan_.sequence, grads.key_window_grad,
             grads.value_window_grad);
    add_up(plan_, keys, grads.key_compress_grad);
    add_up(plan_, values, grads.value_compress_grad);
    add_up(plan_,
           {{&compress.query, &plan_.sequence},
            {&select.query, &plan_.sequence},
            {&window.query, &plan_.sequence}},
           grads.query_grad);
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
