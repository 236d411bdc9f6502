// Prints the table of mutants as tab-separated text: id, operator, difficulty, status, description.
#include <iostream>

#include "mutant_table.h"

int main() {
    using namespace attncheck::mutants;
    for (const Mutant& mutant : kMutants) {
        std::cout << mutant.id << '\t' << mutant.operators.name << '\t'
                  << name_of(mutant.difficulty) << '\t' << name_of(mutant.status) << '\t'
                  << mutant.description;
        if (!mutant.reason.empty()) std::cout << " [" << mutant.reason << ']';
        std::cout << '\n';
    }
    return std::cout.good() ? 0 : 1;
}
