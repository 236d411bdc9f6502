#include "module_defects.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "active_mutant.h"

namespace attncheck::mutants {
namespace {

using Memory = std::vector<std::vector<char>>;

std::int64_t size_of(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT32 || dtype == ATTNCHECK_INT32 ? 4 : 2;
}

std::int64_t elements_of(const attncheck_tensor& tensor) {
    return std::accumulate(tensor.shape, tensor.shape + tensor.rank, std::int64_t{1},
                           std::multiplies<>());
}

char* element(const attncheck_tensor& tensor, std::int64_t k) {
    std::int64_t offset = 0;
    for (int dim = tensor.rank; dim-- > 0; k /= tensor.shape[dim])
        offset += k % tensor.shape[dim] * tensor.strides[dim];
    return static_cast<char*>(tensor.data) + offset * size_of(tensor.dtype);
}

bool is_usable(const attncheck_tensor& tensor) {
    return tensor.data != nullptr && tensor.rank >= 1 && tensor.rank <= 3 &&
           std::all_of(tensor.shape, tensor.shape + tensor.rank,
                       [](std::int64_t extent) { return extent >= 0 && extent < 1 << 20; });
}

std::vector<char> packed(const attncheck_tensor& tensor) {
    const std::int64_t size = size_of(tensor.dtype), count = elements_of(tensor);
    std::vector<char> out(static_cast<std::size_t>(count * size + 1));
    for (std::int64_t k = 0; k < count; ++k)
        std::memcpy(out.data() + k * size, element(tensor, k), static_cast<std::size_t>(size));
    return out;
}

void unpack(const std::vector<char>& from, const attncheck_tensor& tensor) {
    const std::int64_t size = size_of(tensor.dtype);
    for (std::int64_t k = 0; k < elements_of(tensor); ++k)
        std::memcpy(element(tensor, k), from.data() + k * size, static_cast<std::size_t>(size));
}

/// The tensor becomes a dense copy that belongs to the call.
void replace(attncheck_tensor& tensor, std::vector<char> bytes, Memory& memory) {
    memory.push_back(std::move(bytes));
    tensor.data = memory.back().data();
    std::int64_t pitch = 1;
    for (int dim = tensor.rank; dim-- > 0; pitch *= tensor.shape[dim]) tensor.strides[dim] = pitch;
}

/// A tensor that the library wrongly remembers; recalled for the same shape only.
struct Kept {
    std::vector<char> bytes;
    attncheck_tensor like{};

    void keep(const attncheck_tensor& tensor) {
        if (!is_usable(tensor)) return;
        bytes = packed(tensor);
        like = tensor;
    }
    bool fits(const attncheck_tensor& tensor) const {
        return is_usable(tensor) && !bytes.empty() && like.rank == tensor.rank &&
               like.dtype == tensor.dtype &&
               std::equal(like.shape, like.shape + like.rank, tensor.shape);
    }
};

Kept& kept(int index) {
    static Kept all[4];
    return all[index];
}

void recall(int index, attncheck_tensor& tensor, Memory& memory) {
    if (kept(index).fits(tensor)) replace(tensor, kept(index).bytes, memory);
}

/// Statistics as [S,N] per sequence where [N,S] is meant, or back.
std::vector<char> reordered(const attncheck_tensor& statistics, const attncheck_int_array& ends,
                            bool to_rows) {
    const auto heads = static_cast<std::size_t>(statistics.shape[1]);
    constexpr std::size_t kLane = 8 * sizeof(float);
    const std::vector<char> from = packed(statistics);
    std::vector<char> out = from;
    std::size_t first = 0;
    for (std::int64_t b = 0; b < ends.size; ++b) {
        const std::size_t length = static_cast<std::size_t>(ends.values[b]) - first;
        for (std::size_t s = 0; s < length; ++s)
            for (std::size_t n = 0; n < heads; ++n) {
                const std::size_t by_row = first * heads + s * heads + n,
                                  by_head = first * heads + n * length + s;
                std::memcpy(out.data() + (to_rows ? by_row : by_head) * kLane,
                            from.data() + (to_rows ? by_head : by_row) * kLane, kLane);
            }
        first += length;
    }
    return out;
}

/// Calls edit(list, position of the token in its sequence, sequence, kv head) for every list.
template <class Edit>
void edit_lists(attncheck_tensor& topk, const attncheck_int_array& ends, Memory& memory,
                const Edit& edit) {
    if (!is_usable(topk)) return;
    replace(topk, packed(topk), memory);
    auto* list = reinterpret_cast<std::int32_t*>(topk.data);
    const std::int64_t heads = topk.shape[1], count = topk.shape[2];
    std::int64_t first = 0;
    for (std::int64_t b = 0; b < ends.size; first = ends.values[b++])
        for (std::int64_t t = first; t < ends.values[b]; ++t)
            for (std::int64_t n = 0; n < heads; ++n)
                edit(list + (t * heads + n) * count, count, t - first, n);
}

void distort(attncheck_nsa_compress_args& a, Memory& memory) {
    if (on<"MOD-12">()) {
        if (kept(0).fits(a.weight))
            recall(0, a.weight, memory);
        else
            kept(0).keep(a.weight);
    }
    if (on<"MOD-04">()) kept(0).keep(a.input);
}

void distort(attncheck_nsa_compress_grad_args& a, Memory& memory) {
    if (on<"MOD-04">()) recall(0, a.input, memory);
}

void distort(attncheck_nsa_compress_attention_args&, Memory&) {}

template <class Args>
void distort_selected(Args& a, Memory& memory) {
    if (on<"MOD-07">())
        edit_lists(a.topk_indices, a.actual_seq_q_len, memory,
                   [&](std::int32_t* list, std::int64_t count, std::int64_t, std::int64_t) {
                       if (count > 1) list[count - 1] = list[count - 2];
                   });
    if (on<"MOD-15">())
        edit_lists(a.topk_indices, a.actual_seq_q_len, memory,
                   [&](std::int32_t* list, std::int64_t count, std::int64_t, std::int64_t n) {
                       if (n > 0) std::copy_n(list - count, count, list);
                   });
}

void distort(attncheck_nsa_selected_attention_args& a, Memory& memory) {
    distort_selected(a, memory);
}

void distort(attncheck_nsa_selected_attention_grad_args& a, Memory& memory) {
    distort_selected(a, memory);
    if (on<"MOD-03">())
        edit_lists(a.topk_indices, a.actual_seq_q_len, memory,
                   [&](std::int32_t* list, std::int64_t count, std::int64_t, std::int64_t) {
                       std::iota(list, list + count, 0);
                   });
    if (on<"MOD-13">()) a.atten_mask.data = nullptr;
}

void distort(attncheck_flash_attention_score_args& a, Memory&) {
    if (on<"MOD-05">() && a.sparse_mode == 4) ++a.pre_tokens;
}

void distort(attncheck_flash_attention_score_grad_args& a, Memory& memory) {
    const bool by_mask =
        a.sparse_mode == 1 && a.actual_seq_q_len.values && is_usable(a.softmax_max);
    if (on<"MOD-01">() && by_mask)
        for (attncheck_tensor* tensor : {&a.softmax_max, &a.softmax_sum})
            replace(*tensor, reordered(*tensor, a.actual_seq_q_len, false), memory);
    if (on<"MOD-05">() && a.sparse_mode == 4) ++a.pre_tokens;
    if (on<"MOD-06">() && a.sparse_mode == 4) ++a.next_tokens;
    if (on<"MOD-10">()) recall(0, a.attention_in, memory);
    if (on<"MOD-11">() && kept(0).fits(a.softmax_max)) {
        recall(0, a.softmax_max, memory);
        recall(1, a.softmax_sum, memory);
    }
    if (on<"MOD-14">() && a.sparse_mode == 1 && is_usable(a.query))
        a.scale_value = 1 / std::sqrt(static_cast<double>(a.query.shape[a.query.rank - 1]));
}

void finish(const attncheck_nsa_compress_args&) {}
void finish(const attncheck_nsa_compress_grad_args&) {}
void finish(const attncheck_nsa_selected_attention_args&) {}

void finish(const attncheck_nsa_compress_attention_args& a) {
    if (!a.actual_seq_q_len.values || !is_usable(a.softmax_max)) return;
    if (on<"MOD-02">())
        for (const attncheck_tensor* tensor : {&a.softmax_max, &a.softmax_sum})
            unpack(reordered(*tensor, a.actual_seq_q_len, true), *tensor);
    if (!on<"MOD-08">() || !a.actual_sel_seq_kv_len.values) return;
    Memory memory;
    attncheck_tensor lists = a.topk_indices;
    std::int64_t row = 0;
    edit_lists(lists, a.actual_seq_q_len, memory,
               [&](std::int32_t* list, std::int64_t count, std::int64_t s, std::int64_t n) {
                   row += s == 0 && n == 0 ? 1 : 0;  // a sequence with queries begins
                   std::int64_t before = 0, sequence = 0, seen = 0;
                   for (std::int64_t b = 0; b < a.actual_seq_q_len.size && seen < row; ++b) {
                       const std::int64_t first = b ? a.actual_seq_q_len.values[b - 1] : 0;
                       seen += a.actual_seq_q_len.values[b] > first;
                       sequence = b;
                   }
                   before = sequence ? a.actual_sel_seq_kv_len.values[sequence - 1] : 0;
                   for (std::int64_t i = 0; i < count; ++i)
                       list[i] += static_cast<std::int32_t>(before);
               });
    if (!memory.empty()) unpack(memory.back(), a.topk_indices);
}

void finish(const attncheck_nsa_selected_attention_grad_args& a) {
    if (!on<"MOD-09">() || !is_usable(a.dv)) return;
    if (kept(0).fits(a.dv)) {  // adding bits of halves: what is added was not zero
        const std::vector<char> now = packed(a.dv);
        std::vector<char> sum = now;
        for (std::size_t k = 0; k + 1 < now.size(); k += 2)
            if (now[k] == 0 && now[k + 1] == 0)
                sum[k] = kept(0).bytes[k], sum[k + 1] = kept(0).bytes[k + 1];
        unpack(sum, a.dv);
        kept(0).bytes = now;
    } else {
        kept(0).keep(a.dv);
    }
}

void finish(const attncheck_flash_attention_score_args& a) {
    if (on<"MOD-10">()) kept(0).keep(a.attention_out);
    if (on<"MOD-11">()) {
        kept(0).keep(a.softmax_max);
        kept(1).keep(a.softmax_sum);
    }
}
void finish(const attncheck_flash_attention_score_grad_args&) {}

bool any_defect() {
    static_assert(kModuleMutants[0].id == "MOD-01");
    constexpr int kFirst = mutant_index("MOD-01");
    return active_mutant >= kFirst &&
           active_mutant < kFirst + static_cast<int>(std::size(kModuleMutants));
}

}  // namespace

template <class Args>
Composed<Args>::Composed(const Args* args) : args_(args) {
    if (!args || !any_defect()) return;
    changed_ = *args;
    memory_.reserve(8);  // tensors point into it
    distort(changed_, memory_);
    args_ = &changed_;
}

template <class Args>
Composed<Args>::~Composed() {
    if (args_ && any_defect()) finish(*args_);
}

template class Composed<attncheck_nsa_compress_args>;
template class Composed<attncheck_nsa_compress_grad_args>;
template class Composed<attncheck_nsa_compress_attention_args>;
template class Composed<attncheck_nsa_selected_attention_args>;
template class Composed<attncheck_nsa_selected_attention_grad_args>;
template class Composed<attncheck_flash_attention_score_args>;
template class Composed<attncheck_flash_attention_score_grad_args>;

}  // namespace attncheck::mutants
