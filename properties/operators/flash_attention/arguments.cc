// The arguments of a call of flash attention as the C structs of the entry points, and as the
// documented constraints take them.
#include <cstring>

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {

std::vector<std::byte> pack_flash(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                  const std::vector<attncheck_int_array>& arrays,
                                  const std::vector<const char*>& texts, bool gradient) {
    const auto tensor = [&](std::string_view name) { return tensors[tensor_index(call, name)]; };
    const auto bytes_of = [&](auto& arguments) {
        arguments.query = tensor("query");
        arguments.query_rope = tensor("query_rope");
        arguments.key = tensor("key");
        arguments.key_rope = tensor("key_rope");
        arguments.value = tensor("value");
        arguments.drop_mask = tensor("drop_mask");
        arguments.padding_mask = tensor("padding_mask");
        arguments.atten_mask = tensor("atten_mask");
        arguments.softmax_max = tensor("softmax_max");
        arguments.softmax_sum = tensor("softmax_sum");
        arguments.prefix = arrays[0];
        arguments.actual_seq_q_len = arrays[1];
        arguments.actual_seq_kv_len = arrays[2];
        arguments.q_start_idx = arrays[3];
        arguments.kv_start_idx = arrays[4];
        arguments.scale_value = call.real("scale_value");
        arguments.keep_prob = call.real("keep_prob");
        arguments.pre_tokens = call.number("pre_tokens");
        arguments.next_tokens = call.number("next_tokens");
        arguments.head_num = call.number("head_num");
        arguments.input_layout = texts[0];
        arguments.inner_precise = call.number("inner_precise");
        arguments.sparse_mode = call.number("sparse_mode");
        arguments.pse_type = call.number("pse_type");
        std::vector<std::byte> bytes(sizeof arguments);
        std::memcpy(bytes.data(), &arguments, sizeof arguments);
        return bytes;
    };
    if (!gradient) {
        attncheck_flash_attention_score_args arguments{};
        arguments.real_shift = tensor("real_shift");
        arguments.attention_out = tensor("attention_out");
        arguments.softmax_out_layout = texts[1];
        return bytes_of(arguments);
    }
    attncheck_flash_attention_score_grad_args arguments{};
    arguments.dy = tensor("dy");
    arguments.pse_shift = tensor("pse_shift");
    arguments.attention_in = tensor("attention_in");
    arguments.softmax_in_layout = texts[1];
    arguments.dq = tensor("dq");
    arguments.dq_rope = tensor("dq_rope");
    arguments.dk = tensor("dk");
    arguments.dk_rope = tensor("dk_rope");
    arguments.dv = tensor("dv");
    return bytes_of(arguments);
}

ref::Ruling rule_flash(const Call& call, bool gradient) {
    const auto tensor = [&](std::string_view name) {
        const Tensor& t = call.tensor(name);
        return ref::TensorArgument{t.present, t.dtype, t.rank, t.shape};
    };
    const auto array = [&](std::size_t index) {
        const HostArray& given = call.arrays[index];
        ref::ArrayArgument argument{given.present, given.size, given.values};
        if (given.present && given.size >= 0)
            argument.values.resize(static_cast<std::size_t>(given.size));
        return argument;
    };
    ref::FlashAttentionArguments arguments;
    arguments.ascend950 = has_fp8(call.profile);
    arguments.query = tensor("query");
    arguments.query_rope = tensor("query_rope");
    arguments.key = tensor("key");
    arguments.key_rope = tensor("key_rope");
    arguments.value = tensor("value");
    arguments.pse = tensor(gradient ? "pse_shift" : "real_shift");
    arguments.drop_mask = tensor("drop_mask");
    arguments.padding_mask = tensor("padding_mask");
    arguments.atten_mask = tensor("atten_mask");
    arguments.softmax_max = tensor("softmax_max");
    arguments.softmax_sum = tensor("softmax_sum");
    arguments.attention = tensor(gradient ? "attention_in" : "attention_out");
    arguments.prefix = array(0);
    arguments.actual_seq_q_len = array(1);
    arguments.actual_seq_kv_len = array(2);
    arguments.q_start_idx = array(3);
    arguments.kv_start_idx = array(4);
    arguments.scale_value = call.real("scale_value");
    arguments.keep_prob = call.real("keep_prob");
    arguments.pre_tokens = call.number("pre_tokens");
    arguments.next_tokens = call.number("next_tokens");
    arguments.head_num = call.number("head_num");
    arguments.input_layout = call.texts[0].value;
    arguments.softmax_layout = call.texts[1].value;
    arguments.inner_precise = call.number("inner_precise");
    arguments.sparse_mode = call.number("sparse_mode");
    arguments.pse_type = call.number("pse_type");
    if (!gradient) return ref::rule_flash_attention_score(arguments);
    arguments.dy = tensor("dy");
    arguments.dq = tensor("dq");
    arguments.dq_rope = tensor("dq_rope");
    arguments.dk = tensor("dk");
    arguments.dk_rope = tensor("dk_rope");
    arguments.dv = tensor("dv");
    return ref::rule_flash_attention_score_grad(arguments);
}

}  // namespace attncheck::properties
