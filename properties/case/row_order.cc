#include "properties/case/row_order.h"

#include "properties/case/derived.h"

namespace attncheck::properties {

RowOrder::RowOrder(const TensorField& tensor, const Extents& extents) {
    const auto& axes = tensor.logical.axes();
    const Axes& memory = memory_of(tensor, extents);
    if (axes.size() < 2 || axes.size() > 3 || axes[0].factors[0].of != Factor::Of::rows) return;
    const Factor &row = axes[0].factors[0], &head = axes[1].factors[0];
    heads_ = extents.scalar(head.symbol);
    if (axes.size() == 3)
        width_ = std::max<std::int64_t>(extents.scalar(axes[2].factors[0].symbol), 1);
    const auto number = [&](const Axes& in, std::size_t sequence, std::int64_t r, std::int64_t h) {
        Place place;
        place.sequence = static_cast<std::int64_t>(sequence);
        place.at = {{row.name, r}, {head.name, h}};
        return in.number(extents, place) / width_;
    };
    const auto& lengths = extents.lengths(row.symbol);
    bool moves = false;
    std::int64_t end = 0;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
        if (lengths[b] == 0) continue;
        Sequence of{end, end + lengths[b], number(memory, b, 0, 0), number(memory, b, 1, 0),
                    number(memory, b, 0, 1)};
        of.row_step -= of.first;
        of.head_step -= of.first;
        moves = moves || of.first != of.begin * heads_ || of.row_step != heads_ ||
                (of.head_step != 1 && heads_ > 1);
        end = of.end;
        sequences_.push_back(of);
    }
    if (!moves) sequences_.clear();
}

std::int64_t RowOrder::operator()(std::int64_t number) const {
    const std::int64_t row = number / heads_, head = number % heads_;
    const auto of = std::upper_bound(
        sequences_.begin(), sequences_.end(), row,
        [](std::int64_t r, const Sequence& sequence) { return r < sequence.end; });
    if (of == sequences_.end()) return number;
    return of->first + (row - of->begin) * of->row_step + head * of->head_step;
}

}  // namespace attncheck::properties
