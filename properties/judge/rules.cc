#include "properties/judge/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "properties/judge/tier_cases.h"

namespace attncheck::properties {
namespace {

/// Distance of 1 from the next number of the type.
double epsilon(ref::Dtype dtype) { return 2 * ref::unit_roundoff(dtype); }

bool each(const RuledTensor& tensor, const std::function<bool(double exact, double got)>& accepts) {
    for (std::size_t k = 0; k < tensor.exact.size(); ++k)
        if (!accepts(tensor.exact[k], tensor.got[k])) return false;
    return true;
}

/// |got - exact| <= absolute + relative |exact|.
bool all_close(const RuledTensor& tensor, double relative, double absolute) {
    return each(tensor, [&](double exact, double got) {
        return std::fabs(got - exact) <= absolute + relative * std::fabs(exact);
    });
}

/// The defaults of torch.testing.assert_close.
bool torch(const RuledTensor& tensor) {
    switch (tensor.dtype) {
        case ref::Dtype::fp16:
            return all_close(tensor, 1e-3, 1e-5);
        case ref::Dtype::bf16:
            return all_close(tensor, 1.6e-2, 1e-5);
        default:
            return all_close(tensor, 1.3e-6, 1e-5);
    }
}

/// Mean square of the error over that of the exact values, at most 5e-4.
bool ggml(const RuledTensor& tensor) {
    double errors = 0, squares = 0;
    for (std::size_t k = 0; k < tensor.exact.size(); ++k) {
        errors += (tensor.got[k] - tensor.exact[k]) * (tensor.got[k] - tensor.exact[k]);
        squares += tensor.exact[k] * tensor.exact[k];
    }
    return errors <= 5e-4 * squares;
}

bool cudnn(const RuledTensor& tensor) {
    const bool wide = tensor.gradient && tensor.dtype == ref::Dtype::bf16;
    return all_close(tensor, 2e-2, wide ? 7e-2 : 2e-2);
}

bool benchdnn(const RuledTensor& tensor) {
    const double eps = epsilon(tensor.dtype),
                 relative = (tensor.gradient ? 32 : 8) * (1 + tensor.terms) * eps,
                 absolute = tensor.gradient ? 0.05 : eps * tensor.largest_value;
    return each(tensor, [&](double exact, double got) {
        const double error = std::fabs(got - exact);
        const double size = std::fabs(exact) > 1e-5 ? std::fabs(exact) : 1;
        return error <= relative * size || error <= absolute;
    });
}

/// torch.allclose of KernelBench, get_tolerance_for_precision() in src/kernelbench/eval.py.
bool kernelbench(const RuledTensor& tensor) {
    const double tolerance = tensor.dtype == ref::Dtype::fp32 ? 1e-4 : 1e-2;
    return all_close(tensor, tolerance, tolerance);
}

/// FlashInfer-Bench: no element may exceed both limits; BenchmarkConfig and compute_error_stats() in
/// flashinfer_bench/bench/config.py and utils.py.
bool flashinfer_bench(const RuledTensor& tensor) {
    return each(tensor, [](double exact, double got) {
        const double error = std::fabs(got - exact);
        return error <= 1e-2 || error <= 1e-2 * (std::fabs(exact) + 1e-8);
    });
}

double largest_of(const Call& call, std::initializer_list<const char*> names) {
    double largest = 0;
    for (const Tensor& tensor : call.tensors)
        for (const char* name : names)
            if (tensor.name == name)
                for (const double value : decode_all(tensor.type(), tensor.bits))
                    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    return largest;
}

/// Keys of the longest sequence, or rows of a block where nothing is attended to.
double terms_of(const Spec& spec) {
    for (std::size_t list = 0; list < spec.lists.size(); ++list) {
        const std::string& name = spec.schema->lists[list].key;
        if ((name == "kv" || name == "cmp") && !spec.lists[list].empty())
            return static_cast<double>(
                *std::max_element(spec.lists[list].begin(), spec.lists[list].end()));
    }
    return static_cast<double>(spec.number("block"));
}

/// max |got - exact| <= 2 (gradients 3) times that of the composition, plus what adding and taking
/// away 0.3 does to the exact values, twice.
bool flash_attention(const RuledTensor& tensor) {
    const auto store = [&](double x) {
        return ref::decode(tensor.dtype, ref::encode(tensor.dtype, x));
    };
    double error = 0, noise = 0;
    for (std::size_t k = 0; k < tensor.exact.size(); ++k) {
        const double x = store(tensor.exact[k]);
        error = std::max(error, std::fabs(tensor.got[k] - tensor.exact[k]));
        noise = std::max(noise, std::fabs(store(store(x + 0.3) - 0.3) - x));
    }
    return error <= (tensor.gradient ? 3 : 2) * tensor.composition_error + 2 * noise;
}

/// These projects compare neither softmax statistics, which are fp32 whatever the inputs are, nor
/// lists of blocks.
bool is_compared(const Call& call, const Tensor& tensor) {
    const Role role = call.description->tensors[tensor_index(call, tensor.name)].role;
    return !is_statistic(role) && role != Role::list;
}

/// Normally distributed numbers of a half type, logits of a moderate spread.
bool is_ordinary(const Spec& spec, const Call& call) {
    const bool half = std::ranges::all_of(call.tensors, [&](const Tensor& t) {
        return t.type() != ref::Dtype::fp32 || !t.output || !is_compared(call, t);
    });
    if (!half) return false;
    return spec.schema->number("scale") < 0 ? spec.recipe == Recipe::normal : is_tier_data(spec);
}

const std::vector<ToleranceRule>& tolerance_rules() {
    static const std::vector<ToleranceRule> rules{
        {"torch", "assert_close: fp16 1e-3, bf16 1.6e-2, fp32 1.3e-6 relative, 1e-5 absolute",
         torch},
        {"ggml", "mean square of the error at most 5e-4 of that of the tensor", ggml},
        {"cudnn", "2e-2 relative and absolute; 7e-2 absolute for bf16 gradients", cudnn},
        {"benchdnn",
         "8 (1 + keys) eps relative or eps max |v|; gradients 32 (1 + keys) eps or 0.05", benchdnn},
        {"fa2",
         "largest error at most 2 (gradients 3) times that of a composition in half precision, and "
         "2 max |x + 0.3 - 0.3 - x|",
         flash_attention, true},
        {"kernelbench", "1e-2 relative and absolute, added; fp32 1e-4", kernelbench},
        {"flashinfer_bench", "1e-2 relative or 1e-2 absolute", flashinfer_bench}};
    return rules;
}

}  // namespace

std::vector<std::string> rule_names() {
    std::vector<std::string> names;
    for (const ToleranceRule& rule : tolerance_rules()) names.push_back(rule.name);
    return names;
}

const ToleranceRule* find_rule(const std::string& name) {
    const auto& rules = tolerance_rules();
    const auto it = std::find_if(rules.begin(), rules.end(),
                                 [&](const ToleranceRule& rule) { return rule.name == name; });
    return it == rules.end() ? nullptr : &*it;
}

Verdict verdict_by_rule(const ToleranceRule& rule, const Spec& spec, const Call& call,
                        const CallResult& result, const ExpectedOutputs& expected,
                        const std::function<CompositionErrors()>& composition_errors) {
    if (!is_ordinary(spec, call)) return {Verdict::Kind::inapplicable, {}, {}, 0, {}, {}};
    const CompositionErrors errors =
        rule.by_composition ? composition_errors() : CompositionErrors{};
    for (const auto& [name, values] : expected) {
        const Tensor& tensor = call.tensor(name);
        if (!is_compared(call, tensor)) continue;
        std::vector<double> exact, got;
        bool same_class = true;
        const auto all = decode_all(tensor.type(), result.outputs[tensor_index(call, name)]);
        for (std::size_t k = 0; k < all.size(); ++k) {
            const bool finite = std::isfinite(values.value[k]);
            same_class = same_class && finite == std::isfinite(all[k]);
            if (!finite || !std::isfinite(all[k])) continue;
            exact.push_back(values.value[k]);
            got.push_back(all[k]);
        }
        // A rope's gradient stands behind that of the head dim.
        const auto composed = errors.find(name.substr(0, name.find("_rope")));
        if (rule.by_composition && composed == errors.end())
            throw std::logic_error("no composition for " + name);
        const RuledTensor ruled{tensor.type(),
                                spec.schema->op.ends_with("_grad"),
                                terms_of(spec),
                                largest_of(call, {"value", "input"}),
                                composed == errors.end() ? 0 : composed->second,
                                exact,
                                got};
        if (same_class && rule.accepts(ruled)) continue;
        return Verdict::fail(
            name + " is wrong",
            fmt::format("{} is not accepted by the rule {} ({})", name, rule.name, rule.summary));
    }
    return {};
}

}  // namespace attncheck::properties
