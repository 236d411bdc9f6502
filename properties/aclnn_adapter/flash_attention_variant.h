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

}  // namespace attncheck::aclnn_adapter
