// Which variant of the vendor's flash attention functions can say what a call says.
#pragma once

#include <attncheck/candidate.h>

#include <cstring>
#include <tuple>

#include "properties/aclnn_adapter/device_call.h"
#include "properties/case/inert_attribute.h"

namespace attncheck::aclnn_adapter {

/// The vendor spreads the operator over variants that each lack something. `plain` is V1: fixed
/// length outside TND, packed sequences in TND.
enum class FlashVariant { plain, pse_types, ropes, statistics_layout, none };

/// What decides, the same in both directions.
struct FlashNeeds {
    bool packed;             ///< layout TND
    bool ropes;              ///< any rope
    bool pse_types;          ///< pseType other than 1, or start indices
    bool statistics_layout;  ///< anything but "", null included
};

template <class Args>
FlashNeeds flash_needs(const Args& a, bool ropes, const char* statistics_layout) {
    const bool packed = a.input_layout && std::strcmp(a.input_layout, "TND") == 0;
    const bool starts = a.q_start_idx.values || a.kv_start_idx.values || a.q_start_idx.size != 0 ||
                        a.kv_start_idx.size != 0;
    return {packed, ropes, a.pse_type != 1 || starts,
            !statistics_layout || *statistics_layout != '\0'};
}

/// The vendor's functions for one direction, by the types of their first phases.
template <class Fixed, class FixedPseTypes, class Packed, class PackedPseTypes, class PackedRopes,
          class PackedLayout>
struct FlashFunctions {
    TwoPhases<Fixed> fixed;
    TwoPhases<FixedPseTypes> fixed_pse_types;
    TwoPhases<Packed> packed;
    TwoPhases<PackedPseTypes> packed_pse_types;
    TwoPhases<PackedRopes> packed_ropes;
    TwoPhases<PackedLayout> packed_layout;

    bool has(bool tnd, FlashVariant variant) const {
        switch (variant) {
            case FlashVariant::plain:
                return tnd ? bool(packed) : bool(fixed);
            case FlashVariant::pse_types:
                return tnd ? bool(packed_pse_types) : bool(fixed_pse_types);
            case FlashVariant::ropes:
                return tnd && packed_ropes;
            case FlashVariant::statistics_layout:
                return tnd && packed_layout;
            case FlashVariant::none:
                break;
        }
        return false;
    }
    bool has_any() const {
        return fixed || fixed_pse_types || packed || packed_pse_types || packed_ropes ||
               packed_layout;
    }
};

/// The attributes that every variant has, in its order.
template <class Args>
auto flash_numbers(const Args& a, DeviceCall& call) {
    return std::tuple{a.scale_value,
                      a.keep_prob,
                      a.pre_tokens,
                      a.next_tokens,
                      a.head_num,
                      call.text(a.input_layout),
                      a.*properties::kInertMember<Args>,
                      a.sparse_mode};
}

/// The most general variant that the libraries have and that can say it. Outside TND lengths have
/// no effect and are left out.
template <class Has>
FlashVariant flash_variant(const FlashNeeds& needs, Has has) {
    using enum FlashVariant;
    if (!needs.packed) {
        if (needs.ropes || needs.statistics_layout) return none;
        return has(pse_types) ? pse_types : !needs.pse_types && has(plain) ? plain : none;
    }
    if (needs.ropes) return !needs.statistics_layout && has(ropes) ? ropes : none;
    if (needs.statistics_layout)
        return !needs.pse_types && has(statistics_layout) ? statistics_layout : none;
    if (has(pse_types)) return pse_types;
    if (needs.pse_types) return none;
    return has(statistics_layout) ? statistics_layout : has(plain) ? plain : none;
}

template <class... Parts>
auto joined(const Parts&... parts) {
    return std::tuple_cat(parts...);
}

/// Of one direction: the inputs and outputs that every variant has, and what makes the longer lists of those with
/// ropes and with a layout of the statistics.
template <class Inputs, class Outputs, class InputsWithRopes, class OutputsWithRopes, class OutputsWithLayout>
struct FlashLists {
    Inputs inputs;
    Outputs outputs;
    InputsWithRopes inputs_with_ropes;
    OutputsWithRopes outputs_with_ropes;
    OutputsWithLayout outputs_with_layout;
};

/// The parameters in runs that every variant has in the same order.
template <class Args, class Functions, class Lists>
int run_flash_variant(const Args& a, DeviceCall& call, const Functions& f, bool packed, FlashVariant variant,
                      const Lists& lists) {
    const std::tuple numbers = flash_numbers(a, call);
    const std::tuple pse_type{a.pse_type};
    const auto starts = [&] { return std::tuple{call.array(a.q_start_idx), call.array(a.kv_start_idx)}; };
    const auto& [inputs, outputs, inputs_with_ropes, outputs_with_ropes, outputs_with_layout] = lists;
    if (!packed)
        return variant == FlashVariant::plain
                   ? call.run_list(f.fixed, joined(inputs, numbers, outputs))
                   : call.run_list(f.fixed_pse_types, joined(inputs, starts(), numbers, pse_type, outputs));
    const std::tuple lengths{call.array(a.actual_seq_q_len), call.array(a.actual_seq_kv_len)};
    switch (variant) {
        case FlashVariant::pse_types:
            return call.run_list(f.packed_pse_types, joined(inputs, lengths, starts(), numbers, pse_type, outputs));
        case FlashVariant::ropes:
            return call.run_list(f.packed_ropes, joined(inputs_with_ropes(), lengths, starts(), numbers, pse_type,
                                                        outputs_with_ropes()));
        case FlashVariant::statistics_layout:
            return call.run_list(f.packed_layout, joined(inputs, lengths, numbers, outputs_with_layout()));
        default:
            return call.run_list(f.packed, joined(inputs, lengths, numbers, outputs));
    }
}

}  // namespace attncheck::aclnn_adapter
