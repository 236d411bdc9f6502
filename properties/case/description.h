// What an operator is, as plain data: its fields, the extents that follow from them, its tensors
// with their axes, types and places in the C struct, its host arguments and the rules between
// fields. Made once; every Spec and every Call points to it. What follows from it is in derived.h:
// shapes, calls, packing, rulings, words for elements, legality, overrides, edits.
//
//   d.numbers = {{.key = "heads", .min = 1, .max = 128, .word = "head"}, ...};
//   d.lists   = {{.key = "seq", .max = 1 << 20, .max_size = 4096, .word = "token", .beyond = "beyond"}};
//   d.symbols = {{.name = "blocks", .word = "block", .lengths = blocks_of_sequences}};
//   d.tensors = {{.name = "input", .logical = "seq+ heads dim", .argument = both<&A::input, &R::input>}};
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/argument.h"
#include "properties/case/axes.h"
#include "properties/case/edit.h"
#include "properties/case/name_index.h"
#include "properties/case/profile.h"
#include "ref/numbers/dtype.h"

namespace attncheck::properties {

struct Spec;
struct Call;
struct Description;
class Extents;

/// An integer attribute. Values with names print as names[value]. A field equal to its fallback is
/// not printed.
struct NumberField {
    std::string key;
    std::int64_t min = 0, max = 0, step = 1;
    std::int64_t fallback = -1;  ///< value when the key is left out; below min: the key is required
    std::vector<std::string> names = {};
    std::string word = {};  ///< for a position along this extent: "head", "channel"
};

/// A value as the case line has it: its name, or the number.
inline std::string value_name(const NumberField& field, std::int64_t value) {
    return field.names.empty() ? std::to_string(value) : field.names.at(static_cast<std::size_t>(value));
}

/// Lengths of sequences.
struct ListField {
    std::string key;
    std::int64_t min = 0, max = 0;  ///< of each entry
    std::int64_t max_size = 1;
    std::string word = {};    ///< for a row: "token"
    std::string beyond = {};  ///< the field with the number of rows behind the last sequence
    int beyond_field = -1;    ///< the index of `beyond`; resolved() sets it
};

/// An extent that follows from the fields: one number, or one per sequence. Also defined for fields
/// at illegal values, which claims give them.
struct Symbol {
    std::string name, word = {};
    std::function<std::int64_t(const Extents&)> value = {};
    std::function<std::vector<std::int64_t>(const Extents&)> lengths = {};
};

/// A condition on fields: "layout=TND mask dtype=fp16,bf16 pse_type>=2 drop!=absent". All words must
/// be true; one without a value means that the field is not 0; no word at all is always true.
class When {
public:
    When() = default;
    When(const char* text) : text_(text) {}
    /// Throws std::logic_error on a field or an enumerator that the description does not have.
    void resolve(const Description& description);
    bool holds(const Extents& extents) const;
    bool empty() const { return terms_.empty(); }

private:
    struct Term {
        int field = 0;
        enum class Is { one_of, none_of, at_least } is = Is::one_of;
        std::vector<std::int64_t> values;
    };
    std::string text_;
    std::vector<Term> terms_;
};

/// The shape as passed, and the order in memory where that is not row-major.
struct Form {
    When when = {};
    Axes shape;
    Axes order = {};
    bool fixed = false;  ///< of documented contents, which no Spec sets
    /// The axes of the shape, slowest first, where strides make another order of them; an axis that
    /// is left out has stride 0. Layouts apply to these.
    Axes strides = {};
    int repeated = 1;  ///< the dimension of the shape that layout `broadcast` gives stride 0
};

/// "fp32", or a field whose values are named like types.
struct TypeRule {
    When when = {};
    std::string type;
    int field = -1;                   ///< resolved() sets these: the field, and the types of its values;
    std::vector<ref::Dtype> types{};  ///< without a field the one type
};

enum class Role {
    other,
    query,
    key,
    value,
    output,
    query_grad,
    key_grad,
    value_grad,
    output_grad,
    row_max,
    row_sum,
    lse,
    list,
    bias,
    bias_grad,
    mask,
    drop,
    weight,
    weight_grad,
    sink,
    sink_grad
};

/// What a softmax says of its row.
constexpr bool is_statistic(Role role) {
    return role == Role::row_max || role == Role::row_sum || role == Role::lse;
}

struct TensorField {
    std::string name;
    int rank = 0;  ///< of the index that `set` uses; follows from `logical` where that is given
    bool output = false;
    bool derived = false;  ///< an input that follows from the others: has no overrides of its own
    bool integer = false;  ///< holds whole numbers only
    bool optional = false;  ///< an output that a candidate may leave out (outputs.h)
    Role role = Role::other;
    Axes logical = {};               ///< the index that `set` uses; none: numbered row-major
    std::vector<Form> forms = {};    ///< the first that holds; none: as `logical`
    std::vector<TypeRule> types = {{"", "dtype"}};  ///< the first that holds
    When present = {};
    std::vector<std::string> words = {};  ///< of the coordinates, where they are not their symbols'
    TensorArgument argument = {};
    /// The input of which it is a view where `view_when` holds, the first elements of each row of the fastest axis
    /// (lay_views in one_buffer.h); it has neither layout nor overrides there.
    std::string view_of = {};
    When view_when = {};
    bool is_view(const Extents& extents) const { return !view_of.empty() && view_when.holds(extents); }
};

struct ArrayField {
    std::string name;
    ArrayArgument argument = {};
    std::function<std::vector<std::int64_t>(const Extents&)> values = {};
    When present = {};
    std::string ends_of = {};  ///< instead: the list whose cumulative ends it holds
};

/// `tried` of an argument: values that validation gives it, legal and not (edit_groups.h). Empty:
/// the usual ones.
struct TextField {
    std::string name;
    TextArgument argument = {};
    std::function<std::optional<std::string>(const Extents&)> value;
    std::vector<std::string> tried = {};
};

struct IntegerField {
    std::string name;
    IntegerArgument argument = {};
    std::string value;         ///< a symbol, a field or a number
    std::int64_t largest = 0;  ///< of a number of things; 0: it is none
    bool inert = false;        ///< without effect: every value is legal
    int scalar = -1;           ///< of the symbol or field; resolved() sets it
};

struct RealField {
    std::string name;
    RealArgument argument = {};
    std::function<double(const Extents&)> value;
    std::vector<std::string> tried = {};
};

/// A relation between fields: where `when` is true, `holds` must be, or `needs` where that is not
/// given. "{key}" in the message stands for the value of a field.
struct Rule {
    When when = {};
    std::function<bool(const Extents&)> holds = {};
    std::string message;
    When needs = {};
    /// Instead: what holds for every sequence; "{length}" in the message is its entry of the list.
    std::string list = {};
    std::function<bool(const Extents&, std::size_t sequence)> each = {};
};

/// An edit that gives extents a value, legal or not, in every shape and argument that follows from
/// them, so that only their own rule can object: "all.dim=7", "rows.q=5".
struct Claim {
    std::string key;            ///< "all.dim": of the edit, with its attribute
    std::int64_t largest = 0;   ///< values are 0..largest
    bool laid_out = true;       ///< the buffers follow; otherwise only what is passed
    std::function<void(Extents&, std::int64_t)> apply = {};  ///< none: "all.KEY" sets KEY
    bool shapes = true, host = true;  ///< what follows of a call that is laid out already
    std::string except = {};          ///< a tensor that keeps its shape
    std::string limits_of = {};       ///< the field whose limits validation tries; none: that of KEY
    /// Values that validation tries instead.
    std::function<std::vector<std::int64_t>(const Extents&)> tried = {};
};

struct Description {
    std::string op = {};
    std::vector<NumberField> numbers = {};  ///< numbers[0] is the dtype
    std::vector<ListField> lists = {};
    std::vector<TensorField> tensors = {};  ///< in the order of the C struct
    bool parallel_lists = false;            ///< all lists have one entry per sequence
    /// Inputs may repeat in any dimension, as the layouts of spec.h say; otherwise in the second alone.
    bool repeats_anywhere = false;
    std::vector<Symbol> symbols = {};
    std::vector<ArrayField> arrays = {};
    std::vector<TextField> texts = {};
    std::vector<IntegerField> integers = {};
    std::vector<RealField> reals = {};
    std::vector<Rule> rules = {};
    std::vector<Claim> claims = {};
    EntryPoint entry = {};

    /// Why a Spec whose fields are legal is none yet: relations of its elements and layouts.
    std::function<std::optional<std::string>(const Spec&)> element_rules = {};

    /// The call of a case, edits applied. The operator sets it: only the operator knows the elements.
    std::function<Call(const Spec&)> build = {};

    NameIndex number_index = {}, symbol_index = {}, tensor_index = {};  ///< of a description that is resolved
    std::vector<int> symbol_places = {};  ///< likewise: where a symbol stands among the scalars, or among the lengths

    int number(std::string_view key) const;  ///< index, or -1
    int list(std::string_view key) const;
    int tensor(std::string_view name) const;
    /// Indices into Extents: fields first, then symbols; -1 if there is none of this kind.
    int scalar(std::string_view name) const;
    int ragged(std::string_view name) const;
    const Claim* claim_of(const Edit& edit) const;  ///< nullptr: no claim
    const std::string& word_of(std::string_view symbol) const;
};

using Schema = Description;

/// With every name looked up. Throws std::logic_error on one that does not exist.
Description resolved(Description description);

/// All extents of one problem: the values of fields, and what follows from them.
class Extents {
public:
    Extents(const Description& description, std::vector<std::int64_t> numbers,
            std::vector<std::vector<std::int64_t>> lists, std::uint64_t seed = 0,
            Profile profile = Profile::ascend910b);

    /// A field, or all lengths of a list, or a symbol at this value, whatever is legal; what follows
    /// from it follows.
    void claim(std::string_view name, std::int64_t value);
    void claim_lengths(std::string_view list, std::vector<std::int64_t> lengths);
    /// Another type for all tensors that have that of the field dtype.
    void claim_type(ref::Dtype type) { type_ = type; }

    const Description& description() const { return *description_; }
    std::uint64_t seed() const { return seed_; }
    Profile profile() const { return profile_; }
    std::int64_t operator[](std::string_view name) const;  ///< of a field or a symbol
    const std::vector<std::int64_t>& lengths(std::string_view name) const;
    std::int64_t rows(std::string_view name) const;  ///< of a list, with those beyond the last

    std::int64_t scalar(int symbol) const { return scalars_[static_cast<std::size_t>(symbol)]; }
    const std::vector<std::int64_t>& lengths(int symbol) const {
        return lengths_[static_cast<std::size_t>(symbol)];
    }
    std::int64_t rows(int symbol) const;
    /// Of the sequences, 0 without any; asked for once per axis, where there may be a thousand of them.
    std::int64_t longest(int symbol) const { return longest_[static_cast<std::size_t>(symbol)]; }
    std::int64_t sequences() const { return lengths_.empty() ? 1 : std::ssize(lengths_[0]); }
    ref::Dtype type_of(const TensorField& tensor) const;

private:
    void derive();

    const Description* description_;
    std::uint64_t seed_;
    Profile profile_;
    std::vector<std::int64_t> scalars_;
    std::vector<std::vector<std::int64_t>> lengths_;
    std::vector<std::int64_t> sums_, longest_;  ///< of these
    std::vector<bool> pinned_;  ///< scalars that a claim decides
    std::optional<ref::Dtype> type_;
};

/// Why one of the numbers is not a value of its field; nullopt if all are.
std::optional<std::string> number_outside(const Description& description,
                                          std::span<const std::int64_t> numbers);

/// The value of a text: the name of a field's value; "absent" is a null pointer.
std::function<std::optional<std::string>(const Extents&)> name_in(std::string field);

}  // namespace attncheck::properties
