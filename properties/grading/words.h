// What each word of --precision costs: the mutants that a run without the word kills, graded again under it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "properties/grading/mutants.h"

namespace attncheck::properties {

/// What is left of the killed mutants when the candidate declares a word.
struct WordScore {
    std::string word;
    std::vector<MutantScore> scores;
};

/// One value of each word that widens bounds, those that grant little first.
const std::vector<std::string>& graded_words();

/// Every mutant as its library declares itself, then those that were killed under each word. What killed a mutant is
/// tried first; else a run of the whole suite has so many cases of each property, so that no other work on the machine
/// changes the table. The first entry has no word.
std::vector<WordScore> grade_words(const std::vector<Mutant>& mutants, MutationOptions options,
                                   int cases, std::ostream& out);

/// Mutants killed of those that are killed without the word, by family, and ids of the others; those that the limit of
/// time cut off are named apart.
std::string words_table(const std::vector<WordScore>& words);

/// Rewrites what stands between "<!-- words:begin -->" and "<!-- words:end -->". Throws std::runtime_error when the
/// file cannot be read or written or has no marker.
void rewrite_words(const std::string& path, const std::vector<WordScore>& words);

}  // namespace attncheck::properties
