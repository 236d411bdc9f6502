// Tensors full of seeded normal numbers and the calls on them. Gradients get the statistics and the
// attention output of one forward call.
#include "bench/problems.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <tuple>

#include "impl/kernels/half_formats.h"
#include "impl/arguments/strided_rows.h"

namespace attncheck::bench {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::size_t element_bytes(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT32 || dtype == ATTNCHECK_INT32 ? 4 : 2;
}

std::string dtype_name(std::int32_t dtype) {
    return dtype == ATTNCHECK_FLOAT32 ? "fp32" : dtype == ATTNCHECK_FLOAT16 ? "fp16" : "bf16";
}

// A dense tensor that owns its elements, all of them touched.
struct Tensor {
    std::int64_t elements = 1;
    impl::AlignedBuffer<char> data;
    attncheck_tensor view{};

    Tensor(std::int32_t dtype, std::vector<std::int64_t> shape)
        : elements(count(shape)), data(elements * static_cast<std::int64_t>(element_bytes(dtype))) {
        view.data = data.data();
        std::memset(data.data(), 0, static_cast<std::size_t>(elements) * element_bytes(dtype));
        view.dtype = dtype;
        view.rank = static_cast<std::int32_t>(shape.size());
        std::int64_t stride = 1;
        for (std::size_t dim = shape.size(); dim-- > 0;) {
            view.shape[dim] = shape[dim];
            view.strides[dim] = stride;
            stride *= shape[dim];
        }
    }
    void fill(std::mt19937& random) {
        std::normal_distribution<float> values;
        for (std::int64_t i = 0; i < elements; ++i) {
            const float value = values(random);
            if (view.dtype == ATTNCHECK_FLOAT32) {
                reinterpret_cast<float*>(data.data())[i] = value;
            } else {
                reinterpret_cast<std::uint16_t*>(data.data())[i] = view.dtype == ATTNCHECK_FLOAT16
                                                                       ? impl::narrow_fp16(value)
                                                                       : impl::narrow_bf16(value);
            }
        }
    }

private:
    static std::int64_t count(const std::vector<std::int64_t>& shape) {
        std::int64_t product = 1;
        for (const std::int64_t extent : shape) product *= extent;
        return product;
    }
};

void expect_ok(int status, const char* op) {
    if (status != ATTNCHECK_OK)
        throw std::runtime_error(std::string(op) + " returned " + std::to_string(status));
}

struct Dense {
    DenseShape shape;
    Tensor query, key, value, output, output_grad, dq, dk, dv, row_max, row_sum;
    std::uint8_t unread = 0;
    attncheck_tensor mask{};

    Dense(std::int32_t dtype, const DenseShape& s)
        : shape(s),
          query(dtype, {1, s.heads, s.length, s.dim}),
          key(dtype, {1, s.heads, s.length, s.dim}),
          value(dtype, {1, s.heads, s.length, s.value_dim}),
          output(dtype, {1, s.heads, s.length, s.value_dim}),
          output_grad(dtype, {1, s.heads, s.length, s.value_dim}),
          dq(dtype, {1, s.heads, s.length, s.dim}),
          dk(dtype, {1, s.heads, s.length, s.dim}),
          dv(dtype, {1, s.heads, s.length, s.value_dim}),
          row_max(ATTNCHECK_FLOAT32, {1, s.heads, s.length, 8}),
          row_sum(ATTNCHECK_FLOAT32, {1, s.heads, s.length, 8}) {
        std::mt19937 random(1);
        for (Tensor* tensor : {&query, &key, &value, &output_grad}) tensor->fill(random);
        if (!s.causal) return;
        mask.data = &unread;  // the mode decides; contents are not read
        mask.dtype = ATTNCHECK_BOOL;
        mask.rank = 2;
        mask.shape[0] = mask.shape[1] = 2048;
        mask.strides[0] = mask.strides[1] = 0;
    }
    double scale() const { return 1.0 / std::sqrt(static_cast<double>(shape.dim)); }

    int forward() const {
        attncheck_flash_attention_score_args args{};
        args.query = query.view;
        args.key = key.view;
        args.value = value.view;
        args.atten_mask = mask;
        args.scale_value = scale();
        args.keep_prob = 1.0;
        args.pre_tokens = args.next_tokens = kUnlimited;
        args.head_num = shape.heads;
        args.input_layout = "BNSD";
        args.sparse_mode = shape.causal ? 3 : 0;
        args.pse_type = 1;
        args.softmax_out_layout = "";
        args.softmax_max = row_max.view;
        args.softmax_sum = row_sum.view;
        args.attention_out = output.view;
        return attncheck_flash_attention_score(&args);
    }
    int gradient() const {
        attncheck_flash_attention_score_grad_args args{};
        args.query = query.view;
        args.key = key.view;
        args.value = value.view;
        args.dy = output_grad.view;
        args.atten_mask = mask;
        args.softmax_max = row_max.view;
        args.softmax_sum = row_sum.view;
        args.attention_in = output.view;
        args.scale_value = scale();
        args.keep_prob = 1.0;
        args.pre_tokens = args.next_tokens = kUnlimited;
        args.head_num = shape.heads;
        args.input_layout = "BNSD";
        args.sparse_mode = shape.causal ? 3 : 0;
        args.pse_type = 1;
        args.softmax_in_layout = "";
        args.dq = dq.view;
        args.dk = dk.view;
        args.dv = dv.view;
        return attncheck_flash_attention_score_grad(&args);
    }
};

// Data made by the first call, so that what is not measured costs nothing. The gradient's data
// include what a forward call leaves behind.
template <class Data, class... Args>
class OnFirstCall {
public:
    explicit OnFirstCall(Args... args) : args_(args...) {}

    int forward() { return data().forward(); }
    int gradient() { return data().gradient(); }

private:
    Data& data() {
        if (!data_) {
            data_ = std::apply([](auto... args) { return std::make_unique<Data>(args...); }, args_);
            expect_ok(data_->forward(), "the forward operator");
        }
        return *data_;
    }
    std::tuple<Args...> args_;
    std::unique_ptr<Data> data_;
};

constexpr std::int64_t kKvHeads = 1, kSelectedDim = 192, kSelectedValueDim = 128;

// The first block, the query's own and its predecessor, the others drawn from the past, all
// different; a query with fewer blocks in its past lists future ones.
struct SelectedLists {
    std::vector<std::int32_t> blocks;
    std::int64_t visible_pairs = 0;

    explicit SelectedLists(const SelectedShape& shape) {
        const std::int64_t num_blocks = shape.tokens / shape.block;
        std::mt19937 random(1);
        std::vector<std::int32_t> order(static_cast<std::size_t>(num_blocks));
        for (std::int64_t t = 0; t < shape.tokens; ++t) {
            const std::int64_t own = t / shape.block;
            std::iota(order.begin(), order.end(), 0);
            if (own >= shape.count) {
                std::shuffle(order.begin() + 1, order.begin() + own - 1, random);
                std::swap(order[static_cast<std::size_t>(shape.count - 2)],
                          order[static_cast<std::size_t>(own - 1)]);
                std::swap(order[static_cast<std::size_t>(shape.count - 1)],
                          order[static_cast<std::size_t>(own)]);
            }
            blocks.insert(blocks.end(), order.begin(), order.begin() + shape.count);
            for (std::int64_t i = 0; i < shape.count; ++i) {
                const std::int64_t key_pos = order[static_cast<std::size_t>(i)] * shape.block;
                visible_pairs += std::clamp<std::int64_t>(t - key_pos + 1, 0, shape.block);
            }
        }
        visible_pairs *= shape.query_heads;
    }
};

struct Selected {
    Tensor query, key, value, output, output_grad, dq, dk, dv, row_max, row_sum, topk;
    std::uint8_t unread = 0;
    attncheck_tensor mask{};
    SelectedShape shape;
    std::int64_t length;

    Selected(std::int32_t dtype, const SelectedShape& s)
        : query(dtype, {s.tokens, s.query_heads, kSelectedDim}),
          key(dtype, {s.tokens, kKvHeads, kSelectedDim}),
          value(dtype, {s.tokens, kKvHeads, kSelectedValueDim}),
          output(dtype, {s.tokens, s.query_heads, kSelectedValueDim}),
          output_grad(dtype, {s.tokens, s.query_heads, kSelectedValueDim}),
          dq(dtype, {s.tokens, s.query_heads, kSelectedDim}),
          dk(dtype, {s.tokens, kKvHeads, kSelectedDim}),
          dv(dtype, {s.tokens, kKvHeads, kSelectedValueDim}),
          row_max(ATTNCHECK_FLOAT32, {s.tokens, s.query_heads, 8}),
          row_sum(ATTNCHECK_FLOAT32, {s.tokens, s.query_heads, 8}),
          topk(ATTNCHECK_INT32, {s.tokens, kKvHeads, s.count}),
          shape(s),
          length(s.tokens) {
        std::mt19937 random(1);
        for (Tensor* tensor : {&query, &key, &value, &output_grad}) tensor->fill(random);
        mask.data = &unread;
        mask.dtype = ATTNCHECK_BOOL;
        mask.rank = 2;
        mask.shape[0] = mask.shape[1] = 1;
        const SelectedLists lists(s);
        std::copy(lists.blocks.begin(), lists.blocks.end(),
                  reinterpret_cast<std::int32_t*>(topk.data.data()));
    }
    int forward() const {
        const attncheck_nsa_selected_attention_args args{
            query.view,   key.view,     value.view,        topk.view,  mask, {&length, 1},
            {&length, 1}, 0.0721688,    shape.query_heads, "TND",      2,    shape.block,
            shape.count,  row_max.view, row_sum.view,      output.view};
        return attncheck_nsa_selected_attention(&args);
    }
    int gradient() const {
        const attncheck_nsa_selected_attention_grad_args args{query.view,
                                                              key.view,
                                                              value.view,
                                                              output.view,
                                                              output_grad.view,
                                                              row_max.view,
                                                              row_sum.view,
                                                              topk.view,
                                                              {&length, 1},
                                                              {&length, 1},
                                                              mask,
                                                              0.0721688,
                                                              shape.block,
                                                              shape.count,
                                                              shape.query_heads,
                                                              "TND",
                                                              2,
                                                              dq.view,
                                                              dk.view,
                                                              dv.view};
        return attncheck_nsa_selected_attention_grad(&args);
    }
};

constexpr std::int64_t kCompressHeads = 4, kCompressDim = 128, kCompressBlock = 32,
                       kCompressStride = 16;

std::int64_t compressed_rows(std::int64_t tokens) {
    return (tokens - kCompressBlock) / kCompressStride + 1;
}

struct Compress {
    Tensor input, weight, output, input_grad, weight_grad;
    std::int64_t length;

    Compress(std::int32_t dtype, std::int64_t tokens)
        : input(dtype, {tokens, kCompressHeads, kCompressDim}),
          weight(dtype, {kCompressBlock, kCompressHeads}),
          output(dtype, {compressed_rows(tokens), kCompressHeads, kCompressDim}),
          input_grad(dtype, {tokens, kCompressHeads, kCompressDim}),
          weight_grad(dtype, {kCompressBlock, kCompressHeads}),
          length(tokens) {
        std::mt19937 random(1);
        for (Tensor* tensor : {&input, &weight}) tensor->fill(random);
    }
    int forward() const {
        const attncheck_nsa_compress_args args{input.view, weight.view,    {&length, 1},
                                               "TND",      kCompressBlock, kCompressStride,
                                               0,          output.view};
        return attncheck_nsa_compress(&args);
    }
    int gradient() const {
        const attncheck_nsa_compress_grad_args args{
            output.view,     input.view, weight.view, {&length, 1},    kCompressBlock,
            kCompressStride, 0,          "TND",       input_grad.view, weight_grad.view};
        return attncheck_nsa_compress_grad(&args);
    }
};

// A problem and its gradient, which share their data.
template <class Data, class... Args>
std::vector<Problem> both(const Problem& forward, const std::string& gradient_op,
                          double gradient_work, Args... args) {
    const auto data = std::make_shared<OnFirstCall<Data, Args...>>(args...);
    Problem first = forward, second = forward;
    first.call = [data] { return data->forward(); };
    second.call = [data] { return data->gradient(); };
    second.op = gradient_op;
    second.work = gradient_work;
    return {first, second};
}

}  // namespace

std::vector<Problem> dense_problems(std::int32_t dtype, const DenseShape& shape) {
    const double pairs = static_cast<double>(shape.heads * shape.length * shape.length) *
                         (shape.causal ? 0.5 : 1.0),
                 dim = static_cast<double>(shape.dim),
                 value_dim = static_cast<double>(shape.value_dim);
    return both<Dense>({"flash_attention_score", dtype_name(dtype), describe(shape), dtype, 0,
                        pairs * 2 * (dim + value_dim), nullptr},
                       "flash_attention_score_grad", pairs * 2 * (3 * dim + 2 * value_dim), dtype,
                       shape);
}

std::vector<Problem> selected_problems(std::int32_t dtype, const SelectedShape& shape) {
    const double pairs = static_cast<double>(SelectedLists(shape).visible_pairs);
    const std::string text = "S=" + std::to_string(shape.tokens) +
                             " D=192 Dv=128 G=" + std::to_string(shape.query_heads) + " " +
                             std::to_string(shape.count) + " of " +
                             std::to_string(shape.tokens / shape.block) + " blocks";
    return both<Selected>({"nsa_selected_attention", dtype_name(dtype), text, dtype, 0,
                           pairs * 2 * (kSelectedDim + kSelectedValueDim), nullptr},
                          "nsa_selected_attention_grad",
                          pairs * 2 * (3 * kSelectedDim + 2 * kSelectedValueDim), dtype, shape);
}

std::vector<Problem> compress_problems(std::int32_t dtype, std::int64_t tokens) {
    constexpr std::int64_t kElementBytes = 2;
    const double rows = kCompressHeads * kCompressDim * kElementBytes,
                 inputs = static_cast<double>(tokens) * rows +
                          kElementBytes * kCompressBlock * kCompressHeads,
                 output = static_cast<double>(compressed_rows(tokens)) * rows;
    const std::string text = "T=" + std::to_string(tokens) + " N=4 D=128 block=32 stride=16";
    return both<Compress>(
        {"nsa_compress", dtype_name(dtype), text, dtype,
         tokens * kCompressHeads * kCompressDim * kElementBytes, inputs + output, nullptr},
        "nsa_compress_grad", 2 * inputs + output, dtype, tokens);
}

std::string describe(const DenseShape& shape) {
    std::string text = "S=" + std::to_string(shape.length) + " D=" + std::to_string(shape.dim);
    if (shape.value_dim != shape.dim) text += " Dv=" + std::to_string(shape.value_dim);
    return text + (shape.causal ? " causal" : "");
}

}  // namespace attncheck::bench
