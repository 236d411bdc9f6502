#include "properties/case/one_buffer.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "properties/case/derived.h"
#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

constexpr Layout kOneBuffer[] = {Layout::joined, Layout::fused, Layout::woven};

/// The fastest dimensions that always belong to the slice of one view.
std::size_t dimensions_of_slice(Layout layout, std::size_t rank) {
    return layout == Layout::joined ? rank : std::min<std::size_t>(layout == Layout::fused ? 2 : 1, rank);
}

std::vector<std::size_t> order_of(const Tensor& tensor) {
    if (tensor.order.slowest_first) return *tensor.order.slowest_first;
    std::vector<std::size_t> order(tensor.buffer_shape.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

/// A tensor whose dimensions are taken slowest first.
struct View {
    Tensor* tensor = nullptr;
    std::vector<std::size_t> order;

    std::int64_t extent(std::size_t k) const { return tensor->buffer_shape[order[k]]; }
};

/// The slowest dimensions that all views have alike, `most` at most.
std::size_t common_dimensions(const std::vector<View>& views, std::size_t most) {
    for (std::size_t k = 0; k < most; ++k)
        for (const View& view : views)
            if (view.extent(k) != views.front().extent(k)) return k;
    return most;
}

void lay(const std::vector<View>& views, Layout layout, int allocation) {
    const std::size_t rank = views.front().order.size();
    const std::size_t common =
        common_dimensions(views, rank - dimensions_of_slice(layout, rank));
    std::int64_t pitch = 0;
    for (const View& view : views) {
        std::int64_t slice = 1;
        for (std::size_t k = rank; k-- > common;) {
            view.tensor->strides[view.order[k]] = slice;
            slice *= std::max<std::int64_t>(view.extent(k), 1);
        }
        view.tensor->allocation = allocation;
        view.tensor->offset = pitch;
        pitch += slice;
    }
    for (std::size_t k = common; k-- > 0;) {
        for (const View& view : views) view.tensor->strides[view.order[k]] = pitch;
        pitch *= std::max<std::int64_t>(views.front().extent(k), 1);
    }
}

/// The rows of the fastest dimension of `whole` begin with those of `part`.
bool begins_rows_of(const Tensor& whole, const Tensor& part) {
    const auto width = part.buffer_shape.back(), all = whole.buffer_shape.back();
    for (std::int64_t row = 0; row * width < std::ssize(part.bits); ++row)
        if (!std::equal(part.bits.begin() + row * width, part.bits.begin() + (row + 1) * width, whole.bits.begin() + row * all))
            return false;
    return true;
}

}  // namespace

bool may_share_buffer(const TensorField& tensor) {
    return !tensor.output && !tensor.derived &&
           (tensor.role == Role::query || tensor.role == Role::key || tensor.role == Role::value);
}

void lay_in_one_buffer(Call& call, std::span<const Layout> layouts, const Extents& extents) {
    int allocation = 0;
    for (const Layout layout : kOneBuffer) {
        std::vector<View> views;
        for (std::size_t i = 0; i < layouts.size(); ++i) {
            Tensor& tensor = call.tensors[i];
            if (layouts[i] != layout || !tensor.present) continue;
            View view{&tensor, order_of(tensor)};
            if (views.empty() || (tensor.dtype == views.front().tensor->dtype &&
                                  view.order.size() == views.front().order.size()))
                views.push_back(std::move(view));
        }
        if (views.size() > 1) lay(views, layout, ++allocation);
    }
    lay_views(call, extents);
}

void lay_views(Call& call, const Extents& extents) {
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        Tensor& view = call.tensors[i];
        const TensorField& field = call.description->tensors[i];
        if (!view.present || view.output != field.output || !field.is_view(extents)) continue;
        Tensor& whole = call.tensor(field.view_of);
        if (!view.bits.empty() && !begins_rows_of(whole, view)) {
            if (view.allocation != 0)
                view.lie_alone(strides_for(Layout::dense, view.buffer_shape, view.order));
            continue;
        }
        if (whole.allocation == 0)
            for (const Tensor& other : call.tensors)
                whole.allocation = std::max(whole.allocation, other.allocation + 1);
        view.allocation = whole.allocation;
        view.offset = whole.offset;
        view.strides = whole.strides;
    }
}

bool has_one_buffer(const Spec& spec) {
    return std::ranges::any_of(kOneBuffer, [&](Layout layout) {
        return std::ranges::count(spec.layouts, layout) > 1;
    });
}

void draw_one_buffer(Spec& spec) {
    constexpr int kPercent = 4, kWithQuery = 40, kJoined = 20, kOtherWidth = 50;
    Random random(mix(spec.seed ^ 0x0bef4e12) ^ static_cast<std::uint64_t>(spec.numbers[0]));
    if (!spec.schema->entry.pack || !random.chance(kPercent)) return;
    const Layout layout = random.chance(kJoined)  ? Layout::joined
                          : random.chance(50) ? Layout::fused
                                              : Layout::woven;
    const bool with_query = random.chance(kWithQuery);
    Spec other = spec;
    // Views of one width, or of one head, have the same strides, and a kernel may take one's for the other's.
    const int dim = spec.schema->number("dim"), value_dim = spec.schema->number("value_dim");
    if (layout != Layout::joined && dim >= 0 && value_dim >= 0 && random.chance(kOtherWidth)) {
        const std::int64_t width = other.number("dim");
        for (const std::int64_t narrower : {width / 2, 2 * width / 3}) {
            other.set("value_dim", std::max<std::int64_t>(narrower, 1));
            if (other.number("kv_heads") == 1) other.set("kv_heads", 2);  // only then do strides differ
            if (!illegal(other)) break;
            other = spec;
        }
    }
    for (std::size_t i = 0; i < spec.layouts.size(); ++i) {
        const TensorField& tensor = spec.schema->tensors[i];
        if (may_share_buffer(tensor) && (with_query || tensor.role != Role::query))
            other.layouts[i] = layout;
    }
    if (has_one_buffer(other) && !illegal(other)) spec = std::move(other);
}

}  // namespace attncheck::properties
