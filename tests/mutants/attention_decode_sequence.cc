// Which keys a query of AttentionDecode sees, and where in the cache they lie.
#include "attention_decode_call.h"
#include "one_buffer.h"

namespace attncheck::mutants {

Sequence::Sequence(const Args& args, std::int64_t b)
    : args_(args), b_(b), page_size_(args.key_cache.shape[1]), length_(args.kv_length.values[b]) {
    if (on<"AD-08">()) page_size_ = 16;
    if (on<"AD-x371">() || on<"AD-x372">()) {
        const std::int64_t entry = b % (on<"AD-x371">() ? 1024 : 64);
        length_ = std::min(length_, args.kv_length.values[entry]);
    }
    if (on<"AD-WILD-35">()) length_ = std::min(length_, args.kv_length.values[0]);
    if (on<"AD-06">()) length_ = (length_ + page_size_ - 1) / page_size_ * page_size_;
}

Sequence::Range Sequence::seen_by(std::int64_t i) const {
    const std::int64_t queries = args_.query.shape[1],
                       window = on<"AD-x301">() ? static_cast<std::int32_t>(args_.window_left)
                                                : args_.window_left;
    std::int64_t position = args_.kv_length.values[b_] - queries + i;
    if (on<"AD-06">() && i == queries - 1) position = length_ - 1;
    if (on<"AD-WILD-26">()) position = std::min(i, length_ - 1);
    if (on<"AD-12">() && position < 0 && length_ > 0) position = length_ - 1;
    Range range{0, std::min(position + 1, length_)};
    if (on<"AD-10">()) range.end = length_;
    if (on<"AD-11">() && range.end > 1) --range.end;
    if (window < 0) return range;
    if (on<"AD-WILD-43">() && queries == 1 && length_ > page_size_) return range;
    std::int64_t diagonal = on<"AD-14">() ? args_.kv_length.values[b_] - 1 : position;
    if (on<"AD-WILD-23">()) diagonal = static_cast<std::int16_t>(diagonal);
    if (on<"AD-WILD-46">() && queries == 8 && i == 7 && length_ > 1023) --diagonal;
    // A window wider than the position hides nothing; so large a difference may overflow.
    if (window < diagonal) range.begin = diagonal - window + (on<"AD-13">() ? 1 : 0);
    return range;
}

std::int64_t Sequence::entry(std::int64_t column) const {
    const attncheck_tensor& table = args_.block_table;
    const std::int64_t row = on<"AD-02">() ? 0 : b_,
                       stride = on<"AD-24">() ? table.shape[1] : table.strides[0];
    return static_cast<const std::int32_t*>(table.data)[row * stride + column * table.strides[1]];
}

std::int64_t Sequence::page_of(std::int64_t position) const {
    const std::int64_t column = position / page_size_;
    if (on<"AD-01">()) return column;
    // The next entry is wanted before the last key of a page is done with.
    if (on<"AD-05">() && position % page_size_ == page_size_ - 1 && entry(column + 1) < 0) return 0;
    const std::int64_t page = entry(column);
    return on<"AD-26">() ? static_cast<std::int16_t>(page) : page;
}

std::int64_t Sequence::slot_of(std::int64_t position) const {
    if (on<"AD-27">()) position = static_cast<std::int16_t>(position);
    return on<"AD-09">() ? position & (page_size_ - 1) : position % page_size_;
}

std::int64_t Sequence::key(std::int64_t position, std::int64_t head) const {
    const std::int64_t* s = args_.key_cache.strides;
    const std::int64_t pitch =
        on<"AD-22">() ? page_size_ * args_.key_cache.shape[2] * args_.key_cache.shape[3] : s[0];
    return page_of(position) * pitch + slot_of(position) * s[1] + head * s[2];
}

std::int64_t Sequence::value(std::int64_t position, std::int64_t head) const {
    const bool fused = on<"AD-x302">() && begins_inside(args_.value_cache, args_.key_cache);
    const std::int64_t* s = on<"AD-23">() || fused ? args_.key_cache.strides
                                                  : args_.value_cache.strides;
    const std::int64_t page = on<"AD-03">() ? position / page_size_ : page_of(position);
    return page * s[0] + slot_of(position) * s[1] + head * s[2];
}

bool Sequence::is_skipped(std::int64_t position) const {
    if (on<"AD-x373">()) return length_ > 4096 && position == 4095;
    if (!on<"AD-04">() || b_ == 0) return false;
    const Sequence before(args_, b_ - 1);
    return position < before.length_ && page_of(position) == before.page_of(position);
}

}  // namespace attncheck::mutants
