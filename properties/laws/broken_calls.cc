#include "properties/laws/broken_calls.h"

#include <algorithm>
#include <stdexcept>

#include "properties/case/derived.h"
#include "properties/case/edit_groups.h"
#include "properties/case/outputs.h"
#include "properties/case/random.h"

namespace attncheck::properties {

std::optional<Call> broken_call(const Spec& spec) {
    try {
        return spec.schema->build(spec);
    } catch (const std::invalid_argument&) {
        return std::nullopt;
    }
}

bool concerns_withheld(const Spec& spec, const Call& call, const ref::Ruling& ruling) {
    return std::ranges::any_of(
        withheld_names(*spec.schema, spec.withheld), [&](const std::string& output) {
            return ruling.parameter == output || call.tensor(output).present ||
                   std::ranges::find(spec.edits, output, &Edit::name) != spec.edits.end();
        });
}

std::optional<Spec> rejected_neighbour(const Spec& spec) {
    constexpr int kTries = 64;
    const EditGroups groups = derived_edits(extents_of(spec));
    Random random(spec.seed ^ 0x9d17ec7ed);
    for (int tries = 0; tries < kTries && !groups.empty(); ++tries) {
        Spec broken = spec;
        broken.edits = {random.pick(random.pick(groups))};
        const std::optional<Call> call = broken_call(broken);
        if (!call) continue;
        const ref::Ruling ruling = rule(*call);
        if (!ruling.accepted() && !concerns_withheld(broken, *call, ruling)) return broken;
    }
    return std::nullopt;
}

}  // namespace attncheck::properties
