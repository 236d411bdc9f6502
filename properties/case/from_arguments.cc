// Coordinate descent over fields and lists: each takes the value with which most arguments fit,
// until none improves. Fields without a bearing on arguments stay at their simplest.
#include "properties/case/from_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr int kMissing = 16;  ///< an argument that is present on one side only
constexpr int kRank = 8, kExtent = 2, kType = 2, kNumber = 2;
constexpr int kArray = 12;  ///< says the lengths that shapes say in sums
constexpr int kUnknownOutput = 1;  ///< an output that was not given: rather absent
constexpr int kReal = 1;

/// How far the arguments of a case are from those given: 0 where all fit.
struct Distance {
    int hard = 0, soft = 0;
    std::string first;  ///< what does not fit, the worst of all
    int worst = 0;

    void add(int cost, const std::string& what) {
        hard += cost;
        if (cost <= worst) return;
        worst = cost;
        first = what;
    }
    auto key() const { return std::pair(hard, soft); }
};

void compare_tensor(const TensorField& field, const Tensor& own, const GivenArguments& given,
                    bool say, Distance& out) {
    const auto it = given.tensors.find(field.name);
    if (it == given.tensors.end()) {
        if (!own.present) return;
        if (field.output)
            out.soft += kUnknownOutput;
        else
            out.add(kMissing, say ? field.name + " is missing" : "");
        return;
    }
    if (!own.present)
        return out.add(kMissing, say ? field.name + " is given, no such case has it" : "");
    int cost = it->second.dtype == own.type() ? 0 : kType;
    const auto& shape = it->second.shape;
    if (shape.size() != own.shape.size()) {
        cost += kRank;
    } else {
        for (std::size_t d = 0; d < shape.size(); ++d) cost += shape[d] == own.shape[d] ? 0 : kExtent;
    }
    if (cost == 0) return;
    if (field.output) cost = (cost + 1) / 2;  // what a call was made with is known better than what came out
    out.add(cost, say ? fmt::format("{} is {} [{}], the other arguments ask for {} [{}]", field.name,
                                    ref::dtype_name(it->second.dtype), fmt::join(shape, ","),
                                    ref::dtype_name(own.type()), fmt::join(own.shape, ","))
                      : "");
}

void compare_array(const HostArray& own, const GivenArguments& given, bool say, Distance& out) {
    const auto it = given.arrays.find(own.name);
    if ((it != given.arrays.end()) != own.present)
        return out.add(kMissing, say ? own.name + (own.present ? " is missing"
                                                               : " is given, no such case has it")
                                     : "");
    if (!own.present || it->second == own.values) return;
    const int cost = kArray + (it->second.size() == own.values.size() ? 0 : kExtent);
    out.add(cost, say ? fmt::format("{} is [{}], cases of these shapes have [{}]", own.name,
                                    fmt::join(it->second, ","), fmt::join(own.values, ","))
                      : "");
}

Distance distance(const Extents& extents, const GivenArguments& given, bool say) {
    const Call call = outline_of(extents);
    Distance out;
    for (std::size_t i = 0; i < call.tensors.size(); ++i)
        compare_tensor(call.description->tensors[i], call.tensors[i], given, say, out);
    for (const HostArray& array : call.arrays) compare_array(array, given, say, out);
    for (const Text& text : call.texts)
        if (const auto it = given.texts.find(text.name);
            it != given.texts.end() && it->second != text.value.value_or(""))
            out.add(kRank, say ? fmt::format("{} is '{}', cases of these shapes have '{}'", text.name,
                                             it->second, text.value.value_or(""))
                               : "");
    for (const Number& number : call.numbers)
        if (const auto it = given.integers.find(number.name);
            it != given.integers.end() && it->second != number.value)
            out.add(kNumber, say ? fmt::format("{} is {}, the other arguments ask for {}",
                                               number.name, it->second, number.value)
                                 : "");
    for (const Real& real : call.reals)
        if (const auto it = given.reals.find(real.name);
            it != given.reals.end() && it->second != real.value)
            out.soft += kReal;
    return out;
}

class Search {
public:
    Search(const Description& description, const GivenArguments& given, Profile profile)
        : d_(description), given_(given), spec_(description) {
        spec_.profile = profile;
        collect_numbers();
        best_ = of(spec_);
    }

    Spec run() {
        while (best_.key() != std::pair(0, 0)) {
            const auto before = best_.key();
            try_lists();
            for (std::size_t f = 0; f < d_.numbers.size(); ++f)
                for (const Int value : values_of(d_.numbers[f])) try_number(f, value);
            if (best_.key() == before && (best_.hard == 0 || !try_pairs())) break;
        }
        if (best_.hard > 0) throw std::invalid_argument(distance(extents_of(spec_), given_, true).first);
        return spec_;
    }

private:
    Distance of(const Spec& spec) const { return distance(extents_of(spec), given_, false); }

    bool take_if_better(Spec&& spec) {
        const Distance now = of(spec);
        if (!(now.key() < best_.key())) return false;
        best_ = now;
        spec_ = std::move(spec);
        return true;
    }

    bool try_number(std::size_t field, Int value) {
        if (spec_.numbers[field] == value) return false;
        Spec spec = spec_;
        spec.numbers[field] = value;
        return take_if_better(std::move(spec));
    }

    /// Numbers that extents and fields may have: those given, and their quotients.
    void collect_numbers() {
        std::set<Int> extents;
        for (const auto& [name, tensor] : given_.tensors)
            extents.insert(tensor.shape.begin(), tensor.shape.end());
        numbers_ = extents;
        for (const auto& [name, value] : given_.integers) {
            numbers_.insert(value);
            if (value < 0 && value > -(Int{1} << 40)) numbers_.insert(-value);
        }
        constexpr std::size_t kMostQuotients = 24;
        if (extents.size() <= kMostQuotients)
            for (const Int a : extents)
                for (const Int b : extents)
                    if (b > 0 && a % b == 0) numbers_.insert(a / b);
        extents_.assign(extents.begin(), extents.end());
        numbers_.insert({0, 1});
    }

    std::vector<Int> values_of(const NumberField& field) const {
        constexpr Int kFew = 16;
        std::vector<Int> values;
        if (!field.names.empty() || field.max - field.min <= kFew * field.step) {
            for (Int v = field.min; v <= field.max; v += field.step) values.push_back(v);
        } else {
            for (const Int v : numbers_)
                if (v >= field.min && v <= field.max) values.push_back(v);
        }
        return values;
    }

    /// Lengths as an array has them: themselves, as ends, or as starts and the end.
    std::vector<std::vector<Int>> lengths_in(const std::vector<Int>& array) const {
        std::vector<std::vector<Int>> out{array, {}, {}};
        for (std::size_t k = 0; k < array.size(); ++k) {
            const Int length = array[k] - (k == 0 ? 0 : array[k - 1]);
            out[1].push_back(length);
            if (k > 0) out[2].push_back(length);
        }
        std::erase_if(out, [](const auto& lengths) {
            return lengths.empty() || std::ranges::any_of(lengths, [](Int l) { return l < 0; });
        });
        return out;
    }

    void try_lists() {
        if (d_.lists.empty()) return;
        std::vector<std::vector<Int>> wanted;
        for (const auto& [name, array] : given_.arrays)
            for (auto& lengths : lengths_in(array)) wanted.push_back(std::move(lengths));
        constexpr Int kMostPadded = 4096;
        std::vector<Int> batches{1};
        for (const Int count : extents_)
            if (count > 1 && count <= kMostPadded) batches.push_back(count);
        for (const Int batch : batches)
            for (const Int length : extents_)
                wanted.emplace_back(static_cast<std::size_t>(batch), length);
        for (const auto& lengths : wanted) {  // for all lists at once, which then have equal sizes
            Spec spec = spec_;
            for (std::size_t l = 0; l < d_.lists.size(); ++l)
                if (d_.parallel_lists || l == 0) spec.lists[l] = lengths;
            take_if_better(std::move(spec));
        }
        for (std::size_t l = 0; l < d_.lists.size(); ++l)
            for (const auto& lengths : wanted) {
                if (d_.parallel_lists && lengths.size() != spec_.lists[l].size()) continue;
                Spec spec = spec_;
                spec.lists[l] = lengths;
                take_if_better(std::move(spec));
            }
    }

    /// Two fields at once, for those of which one alone changes nothing.
    bool try_pairs() {
        constexpr std::size_t kFewValues = 17;
        for (std::size_t f = 0; f < d_.numbers.size(); ++f)
            for (const Int value : values_of(d_.numbers[f])) {
                if (value == spec_.numbers[f]) continue;
                for (std::size_t g = f + 1; g < d_.numbers.size(); ++g) {
                    const auto others = values_of(d_.numbers[g]);
                    if (others.size() > kFewValues) continue;
                    for (const Int other : others) {
                        if (other == spec_.numbers[g]) continue;
                        Spec spec = spec_;
                        spec.numbers[f] = value;
                        spec.numbers[g] = other;
                        if (take_if_better(std::move(spec))) return true;
                    }
                }
            }
        return false;
    }

    const Description& d_;
    const GivenArguments& given_;
    Spec spec_;
    Distance best_;
    std::set<Int> numbers_;
    std::vector<Int> extents_;
};

}  // namespace

Spec spec_from_arguments(const Description& description, const GivenArguments& given,
                         Profile profile) {
    for (const auto& [name, tensor] : given.tensors)
        if (description.tensor(name) < 0)
            throw std::invalid_argument(fmt::format("{} has no tensor {}", description.op, name));
    return Search(description, given, profile).run();
}

}  // namespace attncheck::properties
