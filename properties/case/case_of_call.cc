#include "properties/case/case_of_call.h"

#include <algorithm>
#include <set>

#include "properties/case/derived.h"
#include "properties/case/outputs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Whether the tensor lies where the one that it may be a view of lies.
bool is_laid_in_another(const Call& call, std::size_t i) {
    const std::string& whole_name = call.description->tensors[i].view_of;
    if (whole_name.empty() || call.tensors[i].allocation == 0) return false;
    const Tensor &view = call.tensors[i], &whole = call.tensor(whole_name);
    return view.allocation == whole.allocation && view.offset == whole.offset && view.strides == whole.strides;
}

/// Arguments of the call that are not those of the case. Reals are apart: laws give them values of
/// their own.
int differences(const Call& call, const Spec& spec) {
    const Call own = outline_of(extents_of(spec));
    int count = 0;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor &one = call.tensors[i], &other = own.tensors[i];
        const bool is_present = one.present || one.withheld;
        count += is_present != other.present;
        if (is_present && other.present)
            count += (one.shape != other.shape) + (one.dtype != other.dtype) +
                     (is_laid_in_another(call, i) != is_laid_in_another(own, i));
    }
    for (std::size_t i = 0; i < call.arrays.size(); ++i)
        count += call.arrays[i].present != own.arrays[i].present ||
                 call.arrays[i].size != own.arrays[i].size;
    for (std::size_t i = 0; i < call.texts.size(); ++i)
        count += call.texts[i].value != own.texts[i].value;
    for (std::size_t i = 0; i < call.numbers.size(); ++i)
        count += call.numbers[i].value != own.numbers[i].value;
    return count;
}

/// Values with names, and few numbers, are tried one by one; of many those that the call has.
std::vector<Int> values_tried(const NumberField& field, const std::set<Int>& numbers) {
    constexpr Int kFew = 16;
    std::vector<Int> values;
    if (!field.names.empty() || field.max - field.min <= kFew * field.step)
        for (Int value = field.min; value <= field.max; value += field.step) values.push_back(value);
    else
        for (const Int value : numbers)
            if (value >= field.min && value <= field.max) values.push_back(value);
    return values;
}

std::set<Int> numbers_of(const Call& call) {
    std::set<Int> numbers{0, 1};
    for (const Tensor& tensor : call.tensors) numbers.insert(tensor.shape.begin(), tensor.shape.end());
    for (const Number& number : call.numbers) numbers.insert(number.value);
    return numbers;
}

/// Gives each field the value with which most arguments are the call's.
void correct(const Call& call, Spec& spec) {
    int left = differences(call, spec);
    if (left == 0) return;
    const std::set<Int> numbers = numbers_of(call);
    for (std::size_t f = 1; f < spec.numbers.size() && left > 0; ++f)
        for (const Int value : values_tried(spec.schema->numbers[f], numbers)) {
            Spec other = spec;
            other.numbers[f] = value;
            if (const int now = differences(call, other); now < left) {
                left = now;
                spec = std::move(other);
            }
        }
}

double real_of(const Spec& spec, std::size_t real) {
    return spec.schema->reals[real].value(extents_of(spec));
}

/// Finds the field that a real follows from. Numbers that no value of it gives leave it unsaid.
void correct_real(const Call& call, std::size_t real, CaseOfCall& of) {
    const double wanted = call.reals[real].value, own = real_of(of.spec, real);
    if (wanted == own) return;
    for (std::size_t f = 1; f < of.spec.numbers.size(); ++f) {
        bool decides = false;
        Spec other = of.spec;
        for (const Int value : values_tried(of.spec.schema->numbers[f], {})) {
            other.numbers[f] = value;
            const double now = real_of(other, real);
            decides |= now != own;
            if (now != wanted) continue;
            of.spec = other;
            return;
        }
        if (decides) of.unsaid.push_back(f);
    }
}

}  // namespace

std::optional<CaseOfCall> case_of(const Call& call) {
    if (call.fields.empty()) return std::nullopt;
    CaseOfCall of{Spec(*call.description), {}};
    of.spec.numbers = call.fields;
    of.spec.lists = call.lists;
    of.spec.profile = call.profile;
    for (std::size_t i = 0; i < call.tensors.size(); ++i)
        if (call.description->tensors[i].optional && !call.tensors[i].present)
            of.spec.withheld |= withheld_bit(*call.description, call.tensors[i].name);
    correct(call, of.spec);
    for (std::size_t real = 0; real < call.reals.size(); ++real) correct_real(call, real, of);
    return of;
}

}  // namespace attncheck::properties
