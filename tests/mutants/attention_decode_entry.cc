// AttentionDecode: for every row the keys in four splits, each with a softmax of its own, and a merge
// of the splits, as kernels for long caches do.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attention_decode_call.h"
#include "first_plan.h"

namespace attncheck::mutants {

namespace {

using Args = attncheck_attention_decode_args;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kSplits = 4;

/// Softmax over some of the keys: maximum, sum of weights, and their sum of values. Keys whose logits
/// are -infinity weigh 0, but 0 times a NaN is one.
struct Part {
    float max = -kInfinity, sum = 0;
    std::vector<float> values;
    bool is_empty = true;
};

class Row {
public:
    Row(const Args& a, const Sequence& sequence, std::int64_t b, std::int64_t i, std::int64_t head)
        : a_(a),
          sequence_(sequence),
          b_(b),
          i_(i),
          head_(head),
          queries_(a.query.shape[1]),
          dim_(a.query.shape[3]),
          value_dim_(a.value_cache.shape[3]),
          group_(a.query.shape[2] / a.key_cache.shape[2]),
          kv_head_(on<"AD-21">() ? head % a.key_cache.shape[2] : head / group_) {}

    void run() {
        const Sequence::Range seen = sequence_.seen_by(i_);
        const std::int64_t count = std::max<std::int64_t>(seen.end - seen.begin, 0),
                           chunk = (count + kSplits - 1) / kSplits;
        read_logits(seen);
        Part all = part_of(seen.begin, seen.begin);
        add_sink(all);
        for (std::int64_t split = 0; split < kSplits; ++split) {
            const std::int64_t begin = std::min(seen.begin + split * chunk, seen.end);
            Part part = part_of(begin, std::min(begin + chunk, seen.end));
            if (on<"AD-WILD-38">() && split > 0 && count > 8) add_sink(part);
            if (on<"AD-WILD-41">() && part.is_empty && !all.is_empty) part = left_over();
            merge(all, part);
        }
        if (on<"AD-WILD-40">()) touch_front(seen.begin, all);
        if (on<"AD-07">()) touch_tail(all);
        write(all);
    }

private:
    /// Scaled products, capped; `first_` is the position of the first.
    void read_logits(Sequence::Range seen) {
        const Elements query(a_.query), keys(a_.key_cache);
        const std::int64_t read =
            on<"AD-31">() && head_ % group_ >= 8 ? head_ - head_ % group_ : head_;
        const std::int64_t row = query.offset(b_, i_, read);
        first_ = seen.begin;
        logits_.clear();
        for (std::int64_t j = seen.begin; j < seen.end; ++j) {
            const std::int64_t key = sequence_.key(j, kv_head_);
            float product = 0;
            const std::int64_t channels = on<"AD-x370">() ? std::min<std::int64_t>(dim_, 256) : dim_;
            for (std::int64_t d = 0; d < channels; ++d)
                product += query.load(row + d * query.stride(3)) * keys.load(key + d * keys.stride(3));
            logits_.push_back(sequence_.is_skipped(j) ? -kInfinity : logit(product));
        }
    }

    float logit(float product) const {
        const float scale = static_cast<float>(a_.scale), cap = static_cast<float>(a_.softcap);
        if (!(cap > 0) || on<"AD-15">()) return scale * product;
        if (on<"AD-16">()) return scale * cap * std::tanh(product / cap);
        return cap * std::tanh(scale * product / cap);
    }

    /// Keys [begin, end).
    Part part_of(std::int64_t begin, std::int64_t end) const {
        Part part;
        part.values.assign(static_cast<std::size_t>(value_dim_), 0.0f);
        if (begin >= end) return part;
        for (std::int64_t j = begin; j < end; ++j) {
            const float s = at(j);
            if (std::isnan(s) || s > part.max) part.max = s;
            if (std::isnan(part.max)) break;
        }
        if (on<"AD-WILD-44">()) part.max = std::max(part.max, -5e4f);
        part.is_empty = false;
        for (std::int64_t j = begin; j < end; ++j) {
            const float weight = part.max == -kInfinity ? 0 : std::exp(at(j) - part.max);
            part.sum += weight;
            add_value(part, j, weight);
        }
        return part;
    }

    float at(std::int64_t j) const { return logits_[static_cast<std::size_t>(j - first_)]; }

    void add_value(Part& part, std::int64_t j, float weight) const {
        const Elements values(a_.value_cache);
        const std::int64_t row = sequence_.value(j, kv_head_);
        const bool coarse = on<"AD-30">();
        for (std::int64_t d = 0; d < value_dim_; ++d) {
            float& sum = part.values[static_cast<std::size_t>(d)];
            sum += weight * values.load(row + d * values.stride(3));
            if (coarse) sum = values.rounded(sum);
        }
    }

    float sink() const {
        if (!a_.sink.data || on<"AD-WILD-37">()) return -kInfinity;
        if (on<"AD-WILD-39">() && queries_ == 1) return -kInfinity;
        return static_cast<const float*>(a_.sink.data)[(on<"AD-17">() ? 0 : head_) *
                                                       a_.sink.strides[0]];
    }

    void add_sink(Part& part) const {
        if (sink() != -kInfinity) add_lane(part, sink());
    }

    /// A logit without a value.
    static void add_lane(Part& part, float logit) {
        merge(part, {logit, 1, std::vector<float>(part.values.size(), 0.0f), false});
    }

    /// `from` becomes part of `to`; what has seen no key counts for nothing.
    static void merge(Part& to, const Part& from) {
        if (from.is_empty) return;
        if (to.is_empty) {
            to = from;
            return;
        }
        const float max = std::isnan(to.max) || std::isnan(from.max)
                              ? std::numeric_limits<float>::quiet_NaN()
                              : std::max(to.max, from.max);
        const auto factor = [max](float own) { return own == max ? 1 : std::exp(own - max); };
        const float keep = factor(to.max), take = factor(from.max);
        to.sum = to.sum * keep + from.sum * take;
        for (std::size_t d = 0; d < to.values.size(); ++d)
            to.values[d] = to.values[d] * keep + from.values[d] * take;
        to.max = max;
    }

    /// What a split of an earlier row left in memory.
    Part left_over() const {
        Part part;
        part.max = 0, part.sum = 1, part.is_empty = false;
        part.values.assign(static_cast<std::size_t>(value_dim_), 0.5f);
        return part;
    }

    /// P is 0 in front of the window, but not P times NaN.
    void touch_front(std::int64_t begin, Part& all) const {
        for (std::int64_t j = begin / 16 * 16; j < begin; ++j) add_value(all, j, 0.0f);
    }
    /// And behind the last position in its page.
    void touch_tail(Part& all) const {
        const std::int64_t page = a_.key_cache.shape[1], length = sequence_.length();
        for (std::int64_t j = length; j % page != 0; ++j) add_value(all, j, 0.0f);
    }

    void write(Part& all) const {
        const Elements out(a_.out);
        const std::size_t seen = logits_.size();
        if (on<"AD-WILD-45">() && seen > 0)
            for (std::size_t j = seen; j % 256 != 0; ++j) add_lane(all, 0);
        if (on<"AD-WILD-52">() && seen > 64)
            for (std::size_t j = seen; j % 64 != 0; ++j) add_lane(all, logits_[j - 64]);
        const bool empty = all.is_empty;
        if (on<"AD-28">() && empty) return;
        std::int64_t to = out.offset(b_, i_, head_), step = out.stride(3);
        if (on<"AD-WILD-47">()) {
            to = ((b_ * queries_ + i_) * out.extent(2) + head_) * value_dim_;
            step = 1;
        }
        for (std::int64_t d = 0; d < value_dim_; ++d)
            out.store(to + d * step, empty ? 0 : all.values[static_cast<std::size_t>(d)] / all.sum);
        if (a_.lse.data || on<"AD-25">()) write_lse(all);
    }

    void write_lse(const Part& all) const {
        const Elements lse(a_.lse);
        float value = all.max + std::log(all.sum);
        if (on<"AD-18">() && sink() != -kInfinity)
            value += std::log1p(-std::exp(sink() - value));
        if (all.is_empty) value = on<"AD-29">() ? -3.4e38f : -kInfinity;
        if (on<"AD-WILD-42">() && sequence_.length() == 0) value = 0;
        if (on<"AD-19">()) value *= 1.44269504f;
        const std::int64_t at = on<"AD-20">()
                                    ? (b_ * queries_ + i_) * a_.query.shape[2] + head_
                                    : lse.offset(b_, head_, i_);
        static_cast<float*>(a_.lse.data)[at] = value;
    }

    const Args& a_;
    const Sequence& sequence_;
    std::int64_t b_, i_, head_, queries_, dim_, value_dim_, group_, kv_head_, first_ = 0;
    std::vector<float> logits_;
};

/// A call, of which one attribute is that of the first call whose other ones were these.
class Planned {
public:
    explicit Planned(const Args& args)
        : args_(args),
          lengths_(args.kv_length.values, args.kv_length.values + args.kv_length.size) {
        const attncheck_tensor& table = args.block_table;
        for (std::int64_t b = 0; b < table.shape[0]; ++b)
            for (std::int64_t page = 0; page < table.shape[1]; ++page)
                table_.push_back(static_cast<const std::int32_t*>(
                    table.data)[b * table.strides[0] + page * table.strides[1]]);
        if (on<"AD-x303">()) args_.scale = first_with(without(0), [&] { return args.scale; });
        if (on<"AD-x304">()) args_.softcap = first_with(without(1), [&] { return args.softcap; });
        if (on<"AD-x305">())
            args_.window_left = first_with(without(2), [&] { return args.window_left; });
        if (on<"AD-x306">()) {
            lengths_ = first_with(without(3), [&] { return lengths_; });
            args_.kv_length.values = lengths_.data();
        }
        if (on<"AD-x307">()) {
            table_ = first_with(without(4), [&] { return table_; });
            args_.block_table.data = table_.data();
            args_.block_table.strides[0] = table.shape[1], args_.block_table.strides[1] = 1;
        }
        if (on<"AD-x330">()) forget(args_.sink);
        if (on<"AD-x331">()) forget(args_.lse);
        if (on<"AD-x332">())
            for (attncheck_tensor* cache : {&args_.key_cache, &args_.value_cache}) {
                std::vector<Part> others = without(kNothing);
                others.push_back({static_cast<double>(cache == &args_.value_cache)});
                std::ranges::copy(first_with(others, [&] { return std::to_array(cache->strides); }), cache->strides);
            }
    }

    const Args& args() const { return args_; }

private:
    using Part = std::vector<double>;
    static constexpr std::size_t kNothing = 5;
    /// A plan without an optional tensor serves calls that have it.
    void forget(attncheck_tensor& forgotten) {
        std::vector<Part> others = without(kNothing);
        for (const attncheck_tensor* t : {&args_.sink, &args_.lse})
            others.push_back(t == &forgotten ? Part{} : Part{static_cast<double>(t->data != nullptr)});
        if (!first_with(others, [&] { return forgotten.data != nullptr; })) forgotten.data = nullptr;
    }
    std::vector<Part> without(std::size_t attribute) const {
        std::vector<Part> others{{args_.scale},
                                 {args_.softcap},
                                 {static_cast<double>(args_.window_left)},
                                 Part(lengths_.begin(), lengths_.end()),
                                 Part(table_.begin(), table_.end()),
                                 {}};
        others[attribute].clear();
        for (const attncheck_tensor* t : {&args_.query, &args_.key_cache, &args_.value_cache})
            others.emplace_back(t->shape, t->shape + t->rank);
        return others;
    }

    Args args_;
    std::vector<std::int64_t> lengths_;
    std::vector<std::int32_t> table_;
};

}  // namespace

}  // namespace attncheck::mutants

int attncheck_attention_decode(const attncheck_attention_decode_args* args) {
    using namespace attncheck::mutants;
    if (args == nullptr) return ATTNCHECK_ERR_NULLPTR;
    if (const int status = accept(*args))
        return status == kNothingComputed ? int{ATTNCHECK_OK} : status;
    const Planned planned(*args);
    const attncheck_attention_decode_args& call = planned.args();
    for (std::int64_t b = 0; b < call.query.shape[0]; ++b) {
        const Sequence sequence(call, b);
        for (std::int64_t i = 0; i < call.query.shape[1]; ++i)
            for (std::int64_t head = 0; head < call.query.shape[2]; ++head)
                Row(call, sequence, b, i, head).run();
    }
    return ATTNCHECK_OK;
}
