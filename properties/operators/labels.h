// Labels and required classes that several operators share.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

/// The labels of a case, in the order in which they are added.
class Labels {
public:
    explicit Labels(const Spec& spec) : spec_(spec) {}
    /// Begins with the type, "data:recipe", and these fields.
    Labels(const Spec& spec, std::initializer_list<const char*> keys);

    void add(bool applies, const char* name) {
        if (applies) out_.emplace_back(name);
    }
    void add(std::string name) { out_.push_back(std::move(name)); }
    /// "key:value" of a field.
    void value_of(const char* key);
    /// For some sequence: test(query length, key length).
    template <class Test>
    void some(Test&& test, const char* name) {
        bool applies = false;
        for (std::size_t b = 0; b < spec_.lists[0].size(); ++b)
            applies = applies || test(spec_.lists[0][b], spec_.lists[1][b]);
        add(applies, name);
    }
    /// How the lengths of queries and keys of a sequence compare, and which are 0.
    void lengths();
    /// Groups, numbers of heads, and widths.
    void heads_and_widths();
    /// "strided", the strides that few callers use, and "one_buffer"; each: "broadcast" and "reversed" too.
    void layouts(bool each = true);
    void given();
    /// "edited". True if the case is: nothing else is counted for it.
    bool edited();

    std::vector<std::string> take() { return std::move(out_); }

private:
    const Spec& spec_;
    std::vector<std::string> out_;
};

/// Classes that a run must reach, by their share.
class Required {
public:
    explicit Required(const Description& description) : description_(description) {}

    Required& share(double percent, std::initializer_list<const char*> labels);
    /// "kind:name" for each name.
    Required& share(double percent, const std::string& kind,
                    std::initializer_list<const char*> names);
    /// "key:value" for every value of a field but those before `first`.
    Required& values(double percent, const char* key, std::int64_t first = 0);
    /// "data:recipe" for every recipe from `first`.
    Required& recipes(double percent, Recipe first = Recipe::ones);
    /// "corner:N": combinations of other classes.
    Required& corners(double percent, std::initializer_list<const char*> names);
    /// Classes whose pairs with others no run of a minute reaches: the pairs are not counted.
    Required& rare(double percent, std::initializer_list<const char*> labels);
    /// What a gradient is given, where the operator is one.
    Required& given(double percent);

    std::vector<RequiredClass> take() { return std::move(out_); }

private:
    const Description& description_;
    std::vector<RequiredClass> out_;
};

}  // namespace attncheck::properties
