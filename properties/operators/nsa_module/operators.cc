#include "properties/operators/catalogue.h"
#include "properties/operators/nsa_module/operators.h"

#include <algorithm>
#include <cstring>

namespace attncheck::properties {
namespace {

thread_local ModuleOperators* current = nullptr;

std::vector<std::int64_t> extents(const std::int64_t* values, std::int32_t rank) {
    return {values, values + rank};
}

/// A call under construction, and where its outputs go.
struct Writer {
    Call call;
    std::vector<attncheck_tensor> tensors;

    void tensor(const char* name, const attncheck_tensor& t, bool output = false) {
        tensors.push_back(t);
        if (!t.data) {
            call.tensors.push_back(make_tensor(name, output, ref::Dtype::fp16, {0}, {}));
            call.tensors.back().present = false;
            return;
        }
        const auto shape = extents(t.shape, t.rank);
        Tensor made = make_tensor(name, output, static_cast<ref::Dtype>(t.dtype), shape, {});
        if (!output) fill(made, t);
        call.tensors.push_back(std::move(made));
    }
    void output(const char* name, const attncheck_tensor& t) { tensor(name, t, true); }
    void array(const char* name, const attncheck_int_array& a) {
        HostArray made{name, a.values != nullptr, a.values ? a.size : 0, {}};
        if (a.values) made.values.assign(a.values, a.values + a.size);
        call.arrays.push_back(std::move(made));
    }
    void text(const char* name, const char* value) {
        call.texts.push_back({name, value ? std::optional<std::string>(value) : std::nullopt});
    }

private:
    /// The mask of band mode has 4 Mi elements: calls share it as long as it stays the same.
    static bool share(Tensor& to, const attncheck_tensor& t) {
        if (to.element_size() != 1 || to.elements() < 1u << 20 ||
            strides_for(Layout::dense, to.shape) != extents(t.strides, t.rank))
            return false;
        static std::shared_ptr<const std::vector<std::uint8_t>> last;
        const auto* bytes = static_cast<const std::uint8_t*>(t.data);
        if (!last || last->size() != to.elements() ||
            std::memcmp(last->data(), bytes, last->size()) != 0)
            last = std::make_shared<std::vector<std::uint8_t>>(bytes, bytes + to.elements());
        to.shared_bytes = last;
        return true;
    }
    static void fill(Tensor& to, const attncheck_tensor& t) {
        if (share(to, t)) return;
        const std::size_t size = to.element_size();
        for (const std::int64_t offset : offsets_of(to.shape, extents(t.strides, t.rank))) {
            std::uint32_t bits = 0;
            std::memcpy(
                &bits,
                static_cast<const std::byte*>(t.data) + offset * static_cast<std::int64_t>(size),
                size);
            to.bits.push_back(bits);
        }
    }
};

void describe(const attncheck_nsa_compress_args& a, Writer& to) {
    to.call.op = "nsa_compress";
    to.tensor("input", a.input);
    to.tensor("weight", a.weight);
    to.output("output", a.output);
    to.array("act_seq_len", a.act_seq_len);
    to.text("layout", a.layout);
    to.call.numbers = {{"compress_block_size", a.compress_block_size},
                       {"compress_stride", a.compress_stride},
                       {"act_seq_len_type", a.act_seq_len_type}};
}

void describe(const attncheck_nsa_compress_grad_args& a, Writer& to) {
    to.call.op = "nsa_compress_grad";
    to.tensor("output_grad", a.output_grad);
    to.tensor("input", a.input);
    to.tensor("weight", a.weight);
    to.output("input_grad", a.input_grad);
    to.output("weight_grad", a.weight_grad);
    to.array("act_seq_len", a.act_seq_len);
    to.text("layout", a.layout);
    to.call.numbers = {{"compress_block_size", a.compress_block_size},
                       {"compress_stride", a.compress_stride},
                       {"act_seq_len_type", a.act_seq_len_type}};
}

void describe(const attncheck_nsa_compress_attention_args& a, Writer& to) {
    to.call.op = "nsa_compress_attention";
    to.tensor("query", a.query);
    to.tensor("key", a.key);
    to.tensor("value", a.value);
    to.tensor("atten_mask", a.atten_mask);
    to.tensor("topk_mask", a.topk_mask);
    to.output("softmax_max", a.softmax_max);
    to.output("softmax_sum", a.softmax_sum);
    to.output("attention_out", a.attention_out);
    to.output("topk_indices", a.topk_indices);
    to.array("actual_seq_q_len", a.actual_seq_q_len);
    to.array("actual_cmp_seq_kv_len", a.actual_cmp_seq_kv_len);
    to.array("actual_sel_seq_kv_len", a.actual_sel_seq_kv_len);
    to.text("input_layout", a.input_layout);
    to.call.numbers = {{"head_num", a.head_num},
                       {"sparse_mode", a.sparse_mode},
                       {"compress_block_size", a.compress_block_size},
                       {"compress_stride", a.compress_stride},
                       {"select_block_size", a.select_block_size},
                       {"select_block_count", a.select_block_count}};
    to.call.reals = {{"scale_value", a.scale_value}};
}

template <class Args>
void describe_selected(const Args& a, Writer& to) {
    to.array("actual_seq_q_len", a.actual_seq_q_len);
    to.array("actual_seq_kv_len", a.actual_seq_kv_len);
    to.text("input_layout", a.input_layout);
    to.call.numbers = {{"head_num", a.head_num},
                       {"sparse_mode", a.sparse_mode},
                       {"selected_block_size", a.selected_block_size},
                       {"selected_block_count", a.selected_block_count}};
    to.call.reals = {{"scale_value", a.scale_value}};
}

void describe(const attncheck_nsa_selected_attention_args& a, Writer& to) {
    to.call.op = "nsa_selected_attention";
    to.tensor("query", a.query);
    to.tensor("key", a.key);
    to.tensor("value", a.value);
    to.tensor("topk_indices", a.topk_indices);
    to.tensor("atten_mask", a.atten_mask);
    to.output("softmax_max", a.softmax_max);
    to.output("softmax_sum", a.softmax_sum);
    to.output("attention_out", a.attention_out);
    describe_selected(a, to);
}

void describe(const attncheck_nsa_selected_attention_grad_args& a, Writer& to) {
    to.call.op = "nsa_selected_attention_grad";
    to.tensor("query", a.query);
    to.tensor("key", a.key);
    to.tensor("value", a.value);
    to.tensor("attention_out", a.attention_out);
    to.tensor("attention_out_grad", a.attention_out_grad);
    to.tensor("softmax_max", a.softmax_max);
    to.tensor("softmax_sum", a.softmax_sum);
    to.tensor("topk_indices", a.topk_indices);
    to.tensor("atten_mask", a.atten_mask);
    to.output("dq", a.dq);
    to.output("dk", a.dk);
    to.output("dv", a.dv);
    describe_selected(a, to);
}

template <class Args>
void describe_flash(const Args& a, const char* layout_name, const char* layout, Writer& to) {
    to.array("prefix", a.prefix);
    to.array("actual_seq_q_len", a.actual_seq_q_len);
    to.array("actual_seq_kv_len", a.actual_seq_kv_len);
    to.array("q_start_idx", a.q_start_idx);
    to.array("kv_start_idx", a.kv_start_idx);
    to.text("input_layout", a.input_layout);
    to.text(layout_name, layout);
    to.call.numbers = {{"pre_tokens", a.pre_tokens},   {"next_tokens", a.next_tokens},
                       {"head_num", a.head_num},       {"inner_precise", a.inner_precise},
                       {"sparse_mode", a.sparse_mode}, {"pse_type", a.pse_type}};
    to.call.reals = {{"scale_value", a.scale_value}, {"keep_prob", a.keep_prob}};
}

void describe(const attncheck_flash_attention_score_args& a, Writer& to) {
    to.call.op = "flash_attention_score";
    to.tensor("query", a.query);
    to.tensor("query_rope", a.query_rope);
    to.tensor("key", a.key);
    to.tensor("key_rope", a.key_rope);
    to.tensor("value", a.value);
    to.tensor("real_shift", a.real_shift);
    to.tensor("drop_mask", a.drop_mask);
    to.tensor("padding_mask", a.padding_mask);
    to.tensor("atten_mask", a.atten_mask);
    to.output("softmax_max", a.softmax_max);
    to.output("softmax_sum", a.softmax_sum);
    to.output("attention_out", a.attention_out);
    describe_flash(a, "softmax_out_layout", a.softmax_out_layout, to);
}

void describe(const attncheck_flash_attention_score_grad_args& a, Writer& to) {
    to.call.op = "flash_attention_score_grad";
    to.tensor("query", a.query);
    to.tensor("query_rope", a.query_rope);
    to.tensor("key", a.key);
    to.tensor("key_rope", a.key_rope);
    to.tensor("value", a.value);
    to.tensor("dy", a.dy);
    to.tensor("pse_shift", a.pse_shift);
    to.tensor("drop_mask", a.drop_mask);
    to.tensor("padding_mask", a.padding_mask);
    to.tensor("atten_mask", a.atten_mask);
    to.tensor("softmax_max", a.softmax_max);
    to.tensor("softmax_sum", a.softmax_sum);
    to.tensor("attention_in", a.attention_in);
    to.output("dq", a.dq);
    to.output("dq_rope", a.dq_rope);
    to.output("dk", a.dk);
    to.output("dk_rope", a.dk_rope);
    to.output("dv", a.dv);
    describe_flash(a, "softmax_in_layout", a.softmax_in_layout, to);
}

/// Results into the memory of the caller.
void write_back(const Writer& writer, const CallResult& result) {
    for (std::size_t i = 0; i < writer.tensors.size(); ++i) {
        const Tensor& tensor = writer.call.tensors[i];
        if (!tensor.output || !tensor.present) continue;
        const attncheck_tensor& t = writer.tensors[i];
        const std::size_t size = tensor.element_size();
        const auto offsets = offsets_of(tensor.shape, extents(t.strides, t.rank));
        for (std::size_t k = 0; k < offsets.size(); ++k)
            std::memcpy(
                static_cast<std::byte*>(t.data) + offsets[k] * static_cast<std::int64_t>(size),
                &result.outputs[i][k], size);
    }
}

}  // namespace

const std::vector<std::string>& module_operators() {
    static const std::vector<std::string> names{"nsa_compress",
                                                "nsa_compress_grad",
                                                "nsa_selected_attention",
                                                "nsa_selected_attention_grad",
                                                "nsa_compress_attention",
                                                "flash_attention_score",
                                                "flash_attention_score_grad"};
    return names;
}

template <class Args>
int ModuleOperators::entry(const Args* args) {
    ModuleOperators& self = *current;
    Writer writer;
    describe(*args, writer);
    writer.call.description = &find_operator(writer.call.op)->schema();
    CallResult result = self.candidate_.run(writer.call, {});
    const auto trouble = verdict_unless_ok(result);
    const int status =
        result.kind == CallResult::Kind::returned ? result.status : ATTNCHECK_ERR_INTERNAL;
    if (trouble) {
        self.trouble_ = trouble;
        if (trouble->failed()) {  // whose it is, for the class and for people
            self.trouble_->failure = writer.call.op + ": " + trouble->failure;
            self.trouble_->message = writer.call.op + " " + trouble->message;
        }
    } else {
        write_back(writer, result);
    }
    self.records_.push_back({std::move(writer.call), std::move(result)});
    return status;
}

ModuleOperators::ModuleOperators(Candidate& candidate) : candidate_(candidate) {
    if (current) throw std::logic_error("another module is running on this thread");
    current = this;
}

ModuleOperators::~ModuleOperators() { current = nullptr; }

attncheck_nsa_operators ModuleOperators::table() const {
    return {entry<attncheck_nsa_compress_args>,
            entry<attncheck_nsa_compress_attention_args>,
            entry<attncheck_nsa_selected_attention_args>,
            entry<attncheck_flash_attention_score_args>,
            entry<attncheck_nsa_compress_grad_args>,
            entry<attncheck_nsa_selected_attention_grad_args>,
            entry<attncheck_flash_attention_score_grad_args>};
}

const OperatorRecord* ModuleOperators::find(std::string_view op, int occurrence) const {
    for (const OperatorRecord& record : records_)
        if (record.call.op == op && occurrence-- == 0) return &record;
    return nullptr;
}

}  // namespace attncheck::properties
