// The gradient of the neutral operators: one pair of query and key at a time.
#include <algorithm>
#include <cfloat>

#include "attention_problem.h"
#include "storage.h"

namespace attncheck::mutants {

namespace {

using Int = std::int64_t;

std::size_t size(Int number) { return static_cast<std::size_t>(number); }

class Gradient {
public:
    explicit Gradient(const NeutralProblem& p) : p_(p) {
        Int keys = 0, rows = 0;
        for (Int b = 0; b < p.batches; ++b) {
            key_start_.push_back(keys), query_start_.push_back(rows);
            keys += p.key_len[size(b)], rows += p.query_len[size(b)];
        }
        dq_.assign(size(rows * p.heads * p.dim), 0);
        dk_.assign(size(keys * p.kv_heads * p.dim), 0);
        dv_.assign(size(keys * p.kv_heads * p.value_dim), 0);
        dsink_.assign(size(p.heads), 0);
        if (p.dbias.data) {
            Int count = 1;
            for (int k = 0; k < 4; ++k) count *= p.dbias.shape[k];
            dbias_.assign(size(count), 0);
            touched_.assign(size(count), 0);
        }
    }

    void run() {
        for (Int b = 0; b < p_.batches; ++b)
            for (Int h = 0; h < p_.heads; ++h)
                for (Int i = 0; i < p_.query_len[size(b)]; ++i) row(b, h, i);
        store_all();
    }

private:
    float stored_half(float x) const {
        if (p_.query.dtype == ATTNCHECK_FLOAT32) return x;
        return round_to(p_.query.dtype == ATTNCHECK_FLOAT16 ? Half::fp16 : Half::bf16, x);
    }

    /// From so many terms on, some defects keep a sum in the storage type.
    static constexpr Int kLongSum = 1024;

    float at(const attncheck_tensor& t, Int row, Int d) const {
        const attncheck_tensor& by = on<"WILD-29">() && t.data == p_.dout.data ? p_.out : t;
        return load(t, row + d * by.strides[t.rank - 1]);
    }

    void row(Int b, Int h, Int i) {
        const Int dout = p_.row_of(p_.dout, b, i, h, false), out = p_.row_of(p_.out, b, i, h, false);
        std::vector<float> own;
        float lse = -kNeutralInfinity;
        if (!p_.lse.data && on<"ATG-07">()) {
            NeutralProblem bare = p_;
            bare.sink.data = nullptr;
            lse = neutral_row(bare, b, h, i, own);
        } else {
            lse = p_.lse.data ? static_cast<const float*>(p_.lse.data)[p_.lse_of(b, h, i)]
                              : neutral_row(p_, b, h, i, own);
        }
        if (on<"ATG-05">()) neutral_row(p_, b, h, i, own);
        float delta = 0;
        for (Int d = 0; d < p_.value_dim; ++d)
            delta += at(p_.dout, dout, d) * (on<"ATG-05">() ? own[size(d)] : at(p_.out, out, d));
        if (const float sink = p_.sink_of(h); sink != -kNeutralInfinity) {
            const bool blind = lse == sink && on<"ATG-11">();
            const float share = (blind ? std::exp(sink) : std::exp(sink - lse)) * delta;
            if (on<"ATG-10">() && h_batch_ != b * p_.heads + h) dsink_[size(h)] = 0;
            h_batch_ = b * p_.heads + h;
            const bool is_lost = on<"ATG-x230">() && h >= 4 && i == p_.query_len[size(b)] / 2;
            const bool is_late = (on<"ATG-x250">() && b >= 8) || (on<"ATG-x255">() && h >= 64);
            if (!is_lost && !is_late) dsink_[size(h)] -= on<"ATG-02">() ? -share : share;
            if (on<"ATG-x204">() && i >= kLongSum) dsink_[size(h)] = stored_half(dsink_[size(h)]);
        }
        Int end = p_.key_len[size(b)], last = end;
        if (on<"ATG-x252">() && i >= kLongSum)
            while (last > 0 && !p_.sees(b, h, i, last - 1)) --last;
        for (Int j = 0; j < end; ++j)
            if (p_.sees(b, h, i, j) && (last == end || j != last - 1)) pair(b, h, i, j, lse, delta, dout);
        if (on<"WILD-5">() && p_.packed && b + 1 < p_.batches && end % kNeutralTile != 0 && end > 0 &&
            p_.window_right < 0) {
            const Int tail = std::min(kNeutralTile - end % kNeutralTile, p_.key_len[size(b + 1)]);
            for (Int j = end; j < end + tail; ++j) pair(b, h, i, j, lse, delta, dout);
        }
    }

    float prob(float s, float lse) const {
        return on<"WILD-11">() ? std::exp(s) * std::exp(-lse) : std::exp(s - lse);
    }

    void pair(Int b, Int h, Int i, Int j, float lse, float delta, Int dout) {
        const Int g = p_.kv_head(h), group = p_.heads / p_.kv_heads;
        const Int q = p_.row_of(p_.query, b, i, h, false), k = p_.row_of(p_.key, b, j, g, true),
                  v = p_.row_of(p_.value, b, j, g, true);
        float slope = 1;
        const float s = p_.score(b, h, i, j, &slope), weight = prob(s, lse);
        float grad = 0;
        for (Int d = 0; d < p_.value_dim; ++d) grad += at(p_.dout, dout, d) * at(p_.value, v, d);
        const float ds = weight * (grad - delta), scaled = ds * slope * p_.scale_fp32;
        if (!dbias_.empty())
            add_bias(number_of(b, h, i, j), b, h, i, on<"ATG-03">() ? ds * slope : on<"ATG-04">() ? ds * p_.scale_fp32 : ds);
        const Int key = key_start_[size(b)] + j, to_k = (key * p_.kv_heads + g) * p_.dim,
                  to_v = (key * p_.kv_heads + g) * p_.value_dim,
                  to_q = ((query_start_[size(b)] + i) * p_.heads + h) * p_.dim;
        const bool tail = on<"WILD-49">() && j >= p_.key_len[size(b)] / 32 * 32 && i >= 32 && i < 64;
        const bool last = !on<"ATG-06">() || h % group == group - 1;
        const Int row_width = p_.query_len[size(b)];
        const bool poisoned = on<"WILD-34">() && row_width > 128 && row_width % 128 == 1 &&
                              i == row_width - 1;
        const bool lost = on<"ATG-x253">() && i >= kLongSum;
        for (Int d = 0; d < p_.dim; ++d) {
            if (on<"ATG-x251">() && j >= kLongSum) break;
            float& dq = dq_[size(to_q + d)];
            dq += (on<"ATG-12">() ? ds * slope : scaled) * at(p_.key, k, d);
            if (on<"ATG-x205">() && j >= kLongSum) dq = stored_half(dq);
            if (tail || lost || !last) continue;
            float& dk = dk_[size(to_k + d)];
            dk += poisoned ? NAN : scaled * at(p_.query, q, d);
            if ((on<"ATG-x206">() && i >= kLongSum) || (on<"ATG-x208">() && h % group > 0))
                dk = stored_half(dk);
        }
        for (Int d = 0; d < p_.value_dim && !tail && !lost; ++d) {
            float& dv = dv_[size(to_v + d)];
            dv += weight * at(p_.dout, dout, d);
            if ((on<"ATG-x207">() && i >= kLongSum) || (on<"ATG-x208">() && h % group > 0))
                dv = stored_half(dv);
        }
    }

    /// Row-major number of an element of dbias.
    Int number_of(Int b, Int h, Int i, Int j) const {
        const Int index[] = {b, h, i, j};
        Int number = 0;
        for (int k = 0; k < 4; ++k)
            number = number * p_.dbias.shape[k] + (p_.dbias.shape[k] == 1 ? 0 : index[k]);
        return number;
    }

    void add_bias(Int number, Int b, Int h, Int i, float ds) {
        if (on<"WILD-16">() && p_.dbias.shape[0] == 1 && b != p_.batches - 1) return;
        if (on<"ATG-08">() && p_.dbias.shape[1] == 1 && h != p_.heads - 1) return;
        if (on<"ATG-x254">() && p_.dbias.shape[0] == 1 && b >= 32) return;
        dbias_[size(number)] += ds;
        constexpr Int kExactly = 64;  // pairs that are summed in fp32
        if ((on<"ATG-x201">() && touched_[size(number)] >= kExactly) ||
            (on<"ATG-x203">() && i >= kLongSum))
            dbias_[size(number)] = stored_half(dbias_[size(number)]);
        ++touched_[size(number)];
    }

    void store_rows(const attncheck_tensor& t, const std::vector<float>& values, bool of_keys,
                    Int width, Int written) {
        const Int heads = of_keys ? p_.kv_heads : p_.heads;
        const Int step = t.strides[t.rank - 1];
        for (Int b = 0; b < p_.batches; ++b) {
            const Int rows = of_keys ? p_.key_len[size(b)] : p_.query_len[size(b)];
            if (of_keys && on<"WILD-6">() && p_.packed && p_.query_len[size(b)] == 0) continue;
            for (Int row = 0; row < rows; ++row)
                for (Int h = 0; h < heads; ++h) {
                    const Int first = of_keys ? key_start_[size(b)] : query_start_[size(b)];
                    const float* from = values.data() + ((first + row) * heads + h) * width;
                    const Int to = p_.row_of(t, b, row, h, of_keys);
                    for (Int d = 0; d < written; ++d)
                        store(t, to + d * step, d < width ? from[d] : 0.0f);
                }
        }
    }

    /// Over so many rows the bound of bf16 has room for it.
    bool long_sums() const {
        constexpr Int kRows = 128;
        Int rows = 0;
        for (const Int length : p_.query_len) rows += length;
        return rows >= kRows && p_.query.dtype == ATTNCHECK_BFLOAT16;
    }

    void store_all() {
        if (on<"WILD-9">() && p_.dim >= 256 && p_.batches > 1)
            for (float& value : dq_) value *= 5;
        const Int v_pitch = p_.value.strides[p_.value.rank - 3];
        if (on<"WILD-3">() && p_.dim >= 256 && v_pitch > p_.kv_heads * p_.value_dim)
            std::fill(dv_.begin(), dv_.end(), NAN);
        store_rows(p_.dq, dq_, false, p_.dim,
                   on<"WILD-1">() && p_.dim > 64 ? p_.dim / 16 * 16 : p_.dim);
        store_rows(p_.dk, dk_, true, p_.dim, p_.dim);
        store_rows(p_.dv, dv_, true, p_.value_dim,
                   on<"WILD-2">() && p_.value_dim > 64 ? std::max(p_.dim, p_.value_dim)
                                                       : p_.value_dim);
        if (p_.dsink.data || (on<"ATG-13">() && p_.sink.data))
            for (Int h = 0; h < p_.heads; ++h)
                static_cast<float*>(p_.dsink.data)[h * p_.dsink.strides[0]] =
                    dsink_[size(h)] * (on<"ATG-x202">() && long_sums() ? 1.03f : 1.0f);
        if (!p_.dbias.data) return;
        const auto* s = p_.dbias.shape;
        for (Int b = 0; b < s[0]; ++b)
            for (Int h = 0; h < s[1]; ++h)
                for (Int i = 0; i < s[2]; ++i)
                    for (Int j = 0; j < s[3]; ++j) {
                        const Int number = number_of(b, h, i, j),
                                  to = NeutralProblem::pair_of(p_.dbias, b, h, i, j);
                        if (on<"ATG-09">() && !touched_[size(number)]) continue;
                        const float old = on<"ATG-14">() ? load(p_.dbias, to) : 0;
                        store(p_.dbias, to, old + dbias_[size(number)]);
                    }
    }

    const NeutralProblem& p_;
    std::vector<Int> key_start_, query_start_;
    std::vector<float> dq_, dk_, dv_, dbias_, dsink_;
    std::vector<Int> touched_;  ///< pairs of every element of dbias
    Int h_batch_ = -1;
};

}  // namespace

void neutral_gradient(const NeutralProblem& p) { Gradient(p).run(); }

}  // namespace attncheck::mutants

int attncheck_attention(const attncheck_attention_args* args) {
    using namespace attncheck::mutants;
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    const NeutralArguments given = arguments_of(*args);
    if (const int status = accept(given)) return status == 1 ? int{ATTNCHECK_OK} : status;
    neutral_forward(NeutralProblem(given));
    return ATTNCHECK_OK;
}

int attncheck_attention_grad(const attncheck_attention_grad_args* args) {
    using namespace attncheck::mutants;
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    const NeutralArguments given = arguments_of(*args);
    if (const int status = accept(given)) return status == 1 ? int{ATTNCHECK_OK} : status;
    neutral_gradient(NeutralProblem(given));
    return ATTNCHECK_OK;
}
