// A folder of cases that failed once: replayed first by the next run, and extended by what it
// finds.
//
// One text file for each operator, OPERATOR.txt; a line is PROPERTY CASE, where * stands for every
// property; # starts a comment. Lines are added, never changed, so people can edit the files and
// version control shows what was found when.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

/// Whether a property can be asked for the case: it is in its domain, and a call with edited arguments for one about validation.
bool is_case_of(const Property& property, const Spec& spec);

class Corpus {
public:
    /// Reads the folder; one that does not exist is empty and is created by the first add(). Cases
    /// that are legal under another profile only are left out. Throws std::runtime_error naming
    /// file and line for what is no case of that operator.
    Corpus(std::string folder, Profile profile);

    /// The cases of a property, in the order of the file; those outside its domain, and calls with
    /// edited arguments for a property that is not about validation, are left out.
    std::vector<Spec> cases_of(const Operator& op, const Property& property) const;

    /// Throws std::runtime_error when add() could not write there.
    void check_writable() const;

    /// What was left out on reading: half a line at the end, which a full disk leaves.
    const std::vector<std::string>& warnings() const { return warnings_; }

    /// Appends a case unless the property has it already. Throws std::runtime_error when the file
    /// cannot be written; the file is as before then.
    void add(const Operator& op, const std::string& property, const Spec& spec);

private:
    struct Entry {
        std::string op, property;
        Spec spec;
    };
    std::string path_of(const std::string& op) const { return folder_ + "/" + op + ".txt"; }
    void read(const Operator& op, Profile profile);
    /// Nothing for a case of another profile. Throws std::invalid_argument for what is no case.
    static std::optional<Entry> entry_of(const std::string& line, const Operator& op,
                                         Profile profile);

    std::string folder_;
    std::vector<Entry> entries_;
    std::vector<std::string> warnings_;
};

}  // namespace attncheck::properties
