// A fuzzed call that is held as the C struct of an operator's gradient (or of an operator without
// one), which the descriptions of both directions read: the rules' arguments, the struct of the
// forward, the validator and the entry point follow from them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzzed_call.h"
#include "impl/validated_entry_points.h"
#include "properties/case/description.h"

namespace attncheck::fuzz {

/// The operators of a family, and for each argument of the forward the gradient's that it takes.
class Family {
public:
    /// `renamed`: arguments of the forward with another name in the gradient, {forward's, gradient's}.
    explicit Family(const char* forward, const char* gradient = nullptr,
                    const std::map<std::string, std::string>& renamed = {});

    const properties::Description& description(bool forward) const {
        return forward ? forward_ : held_;
    }
    /// The struct of the forward, from that of the gradient.
    std::vector<std::byte> forward_of(const void* held) const;
    const impl::EntryPoint& entry(bool forward) const { return *entries_[forward]; }

    /// The integer without effect, which the struct has.
    const properties::IntegerField& inert() const;

private:
    const properties::Description &forward_, &held_;
    const impl::EntryPoint* entries_[2];  ///< of the gradient, of the forward
    std::vector<std::size_t> tensors_, arrays_, texts_, integers_, reals_;
};

/// Arrays as the validators get them, by their names in the description.
using BackedArrays = std::map<std::string, ref::ArrayArgument, std::less<>>;

class StructCall : public FuzzedCall {
public:
    impl::MaybeRejection rejection() const override;
    int enter() const override;
    ArgumentList arguments() const override;

protected:
    /// `held` lives as long as the call.
    StructCall(const Family& family, const void* held) : family_(family), held_(held) {}

    /// The rules' arguments of this direction, from the struct and its arrays.
    template <class Ruled>
    Ruled ruled() const {
        Ruled out;
        fill(&out);
        return out;
    }
    BackedArrays backed_;

private:
    void fill(void* ruled) const;

    const Family& family_;
    const void* held_;
};

}  // namespace attncheck::fuzz
