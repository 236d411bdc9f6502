// What part of an operator's cases a candidate takes: the values of each aspect that it takes or refuses, and the
// combinations that it refuses although it takes each value alone. Learned by survey.h.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "properties/search/aspects.h"

namespace attncheck::properties {

class Scope {
public:
    explicit Scope(const Operator& op)
        : op_(&op),
          aspects_(aspects_of(op)),
          limits_(aspects_.size()),
          lengths_(op.schema().lists.size()) {}

    const std::vector<Aspect>& aspects() const { return aspects_; }
    /// No field is refused, as far as is known.
    bool is_open() const;
    bool holds(const Spec& spec) const;
    bool is_of(const Spec& spec) const { return spec.schema == &op_->schema(); }

    /// A legal case inside that has as much of `wanted` as an accepted case can take over; nullopt without one.
    std::optional<Spec> brought_inside(const Spec& wanted, Random& random) const;

    /// A case inside with one value of `wanted` that is not taken, as far as is known: the one that was asked for least.
    /// The more often it was refused, the more often there is none.
    std::optional<Spec> just_outside(const Spec& wanted, Random& random) const;
    /// A case that lies outside was declined.
    void refused_again(const Spec& declined);

    /// The case with a value that is taken for each that is not, where there is one; not always legal.
    void mend(Spec& spec, Random& random) const;

    /// A case that the candidate took. The first one has the fewest features.
    void accept(const Spec& spec);
    const std::vector<Spec>& accepted() const { return accepted_; }

    /// Restricts it to what a candidate declares: "dtype=bf16,fp16 dim=64,128 group=1..8 value_dim=dim", as the case line
    /// has fields and values, with lists, ranges a..b and a..b/step, and fields that are equal. "q=64,128" are the lengths
    /// that a sequence may have. Throws std::invalid_argument with the word and what is known there.
    /// "outputs=attention_out" says which outputs the candidate gives (case/outputs.h) and leaves the fields to be learned.
    void restrict_to(const std::string& features);
    std::uint64_t withheld() const { return withheld_; }
    /// The same outputs, nothing else known.
    Scope with_its_outputs_only() const {
        Scope scope(*op_);
        scope.withheld_ = withheld_;
        return scope;
    }
    bool is_declared() const { return is_declared_; }

    bool takes(std::size_t aspect, std::int64_t value) const;
    /// A case that was inside and was declined: values of it that no accepted case has are refused from the third time
    /// on that the aspect is to blame, from the eighth time on where nobody knows. False when it has none.
    bool suspect(const Spec& declined, const std::function<bool(std::size_t)>& is_to_blame = {});

    bool takes_for_sure(std::size_t aspect, std::int64_t value) const {
        return limits_[aspect].accepted.contains(value);
    }
    void refuse(std::size_t aspect, std::int64_t value) { limits_[aspect].refused.insert(value); }
    /// From now on only the values that were accepted.
    void close(std::size_t aspect) { limits_[aspect].closed = true; }
    /// Together, not alone: aspects and their values. An extent stands for every size that was not accepted. Takes the
    /// place of those that have these and more; nothing is new where fewer of them are known to be refused.
    void refuse_together(std::vector<std::pair<std::size_t, std::int64_t>> values);

    /// What was learned, as lines of text, and back, one line each; false: a line of something else.
    std::string to_text() const;
    bool take_line(const std::string& word, std::istream& rest, Profile profile);

    /// "dim=64,128 layout=BSND,TND pse=absent": what the aspects with limits take.
    std::string text() const;
    /// "sparse 67 %, pse 56 %": shares of the cases that each aspect keeps outside, largest first, at most five.
    std::string refusals_text(const std::vector<Spec>& cases) const;

private:
    struct Range {
        std::int64_t low = 0, high = 0, step = 1;
        bool has(std::int64_t value) const {
            return value >= low && value <= high && (value - low) % step == 0;
        }
    };
    struct Limit {
        std::set<std::int64_t> accepted, refused;
        bool closed = false;
        std::vector<Range> declared;  ///< none: everything
    };
    bool is_refused_together(const Spec& spec) const;
    std::string text_of_combinations() const;
    /// Sizes that are not taken are alike.
    std::pair<std::size_t, std::int64_t> asked(std::size_t aspect, std::int64_t value) const {
        return {aspect, aspects_[aspect].is_extent ? 0 : value};
    }
    bool suspect_sizes(std::size_t aspect);
    bool takes_lengths(const Spec& spec) const;
    void mend_lengths(Spec& spec, Random& random) const;
    std::size_t aspect_named(const std::string& name) const;  ///< the number of aspects: there is none
    std::optional<std::size_t> relation_of(const std::string& key, const std::string& values) const;
    void declare(const std::string& key, const std::string& values);
    bool declare_lengths(const std::string& key, const std::string& values);
    Range range_of(const Aspect& aspect, const std::string& word) const;
    static Range range_of_numbers(const std::string& name, const std::string& word);
    static bool is_in(const std::vector<Range>& ranges, std::int64_t value);
    static std::int64_t any_of(const std::vector<Range>& ranges, Random& random);
    static std::string text_of(const std::vector<Range>& ranges, const Aspect* aspect);

    const Operator* op_;
    std::vector<Aspect> aspects_;
    std::vector<Limit> limits_;
    std::vector<std::vector<Range>> lengths_;  ///< by list, those declared of a sequence; none: all
    std::vector<std::vector<std::pair<std::size_t, std::int64_t>>> combinations_;
    std::vector<Spec> accepted_;
    std::map<std::pair<std::size_t, std::int64_t>, int> suspicions_;
    std::map<std::size_t, int> suspected_sizes_;  ///< by aspect
    std::map<std::pair<std::size_t, std::int64_t>, int> refusals_;  ///< of values outside, after those that put them there
    std::uint64_t withheld_ = 0;  ///< outputs that are declared not to be given
    bool is_declared_ = false;    ///< the fields are
};

/// The case with one part of another: part 0 is all lengths, then each field, then each memory order.
std::size_t parts_of(const Spec& spec);
void copy_part(const Spec& from, std::size_t part, Spec& to);

}  // namespace attncheck::properties
