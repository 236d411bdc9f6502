#include "properties/operators/nsa_module/operators.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "properties/operators/flash_attention/case.h"
#include "properties/operators/nsa_compress/case.h"
#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

std::vector<std::int64_t> extents(const std::int64_t* values, std::int32_t rank) {
    return {values, values + rank};
}

/// The mask of band mode has 4 Mi elements: calls share one with the documented contents.
bool share(Tensor& to, const attncheck_tensor& t) {
    if (to.element_size() != 1 || to.elements() < 1u << 20 ||
        strides_for(Layout::dense, to.shape) != extents(t.strides, t.rank))
        return false;
    const auto mask = compressed_mask(false);
    if (mask->size() != to.elements() || std::memcmp(t.data, mask->data(), mask->size()) != 0)
        return false;
    to.shared_bytes = mask;
    return true;
}

template <std::size_t size, class Work>
void for_each_of_size(const attncheck_tensor& t, const Work& work) {
    constexpr std::integral_constant<std::size_t, size> constant;
    const std::int32_t outer = std::max(t.rank - 1, 0);
    const std::int64_t count = t.rank > 0 ? t.shape[outer] : 1;
    const std::int64_t step = t.rank > 0 ? t.strides[outer] * std::int64_t{size} : 0;
    for (const std::int64_t offset : offsets_of(extents(t.shape, outer), extents(t.strides, outer))) {
        std::byte* at = static_cast<std::byte*>(t.data) + offset * std::int64_t{size};
        for (std::int64_t i = 0; i < count; ++i, at += step) work(at, constant);
    }
}

/// Calls work(address, size) for every element in row-major order. The size is a constant for the compiler: a case has
/// a hundred thousand elements.
template <class Work>
void for_each_element(const attncheck_tensor& t, std::size_t size, const Work& work) {
    if (size == 1) return for_each_of_size<1>(t, work);
    if (size == 2) return for_each_of_size<2>(t, work);
    for_each_of_size<4>(t, work);
}

void fill(Tensor& to, const attncheck_tensor& t) {
    if (share(to, t)) return;
    to.bits.assign(to.elements(), 0);
    std::uint32_t* bits = to.bits.data();
    for_each_element(t, to.element_size(),
                     [&](const std::byte* at, auto size) { std::memcpy(bits++, at, size); });
}

Tensor tensor_of(const TensorField& field, const attncheck_tensor& t) {
    if (!t.data) {
        Tensor absent = make_tensor(field.name, field.output, ref::Dtype::fp16, {0}, {});
        absent.present = false;
        return absent;
    }
    Tensor made = make_tensor(field.name, field.output, static_cast<ref::Dtype>(t.dtype),
                              extents(t.shape, t.rank), {});
    if (!field.output) fill(made, t);
    return made;
}

/// The members of the C struct of an entry point.
Call read(const Description& d, const void* args) {
    Call call;
    call.op = d.op;
    call.description = &d;
    for (const TensorField& field : d.tensors)
        call.tensors.push_back(tensor_of(field, field.argument.get(args)));
    for (const ArrayField& field : d.arrays) {
        const attncheck_int_array a = field.argument.get(args);
        HostArray made{field.name, a.values != nullptr, a.values ? a.size : 0, {}};
        if (a.values) made.values.assign(a.values, a.values + a.size);
        call.arrays.push_back(std::move(made));
    }
    for (const TextField& field : d.texts) {
        const char* text = field.argument.get(args);
        call.texts.push_back(
            {field.name, text ? std::optional<std::string>(text) : std::nullopt});
    }
    for (const IntegerField& field : d.integers)
        call.numbers.push_back({field.name, field.argument.get(args)});
    for (const RealField& field : d.reals)
        call.reals.push_back({field.name, field.argument.get(args)});
    return call;
}

/// Results into the memory of the caller.
void write_back(const Call& call, const void* args, const CallResult& result) {
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (!tensor.output || !tensor.present) continue;
        const attncheck_tensor t = call.description->tensors[i].argument.get(args);
        const std::uint32_t* bits = result.outputs[i].data();
        for_each_element(t, tensor.element_size(),
                         [&](std::byte* at, auto size) { std::memcpy(at, bits++, size); });
    }
}

/// By ModuleOp.
const std::array<const Description*, 7>& descriptions() {
    static const std::array<const Description*, 7> all{&compress_description(false),
                                                       &compress_attention::description(),
                                                       &selected_description(false),
                                                       &flash_description(false),
                                                       &compress_description(true),
                                                       &selected_description(true),
                                                       &flash_description(true)};
    return all;
}

}  // namespace

const std::vector<std::string>& module_operators() {
    static const auto names = [] {
        std::vector<std::string> out;
        for (const Description* d : descriptions()) out.push_back(d->op);
        return out;
    }();
    return names;
}

int ModuleOperators::run(const char* op, const void* args) {
    const auto& names = module_operators();
    const auto number = static_cast<std::size_t>(std::ranges::find(names, op) - names.begin());
    Call call = read(*descriptions().at(number), args);
    CallResult result;
    try {
        result = candidate_.run(call, {});
    } catch (...) {
        thrown_ = std::current_exception();
        return ATTNCHECK_ERR_INTERNAL;
    }
    const auto early_verdict = verdict_unless_ok(result);
    const int status =
        result.kind == CallResult::Kind::returned ? result.status : ATTNCHECK_ERR_INTERNAL;
    if (early_verdict) {
        early_verdict_ = early_verdict;
        if (early_verdict->failed()) {  // whose it is, for the class and for people
            early_verdict_->failure = call.op + ": " + early_verdict->failure;
            early_verdict_->message = call.op + " " + early_verdict->message;
        }
    } else {
        write_back(call, args, result);
    }
    records_.push_back({static_cast<ModuleOp>(number), std::move(call), std::move(result)});
    return status;
}

attncheck_nsa_operators ModuleOperators::table() {
    attncheck_nsa_operators table{};
    table.call = [](void* caller, const char* op, const void* args) {
        return static_cast<ModuleOperators*>(caller)->run(op, args);
    };
    table.caller = this;
    return table;
}

}  // namespace attncheck::properties
