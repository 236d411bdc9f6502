#include "properties/nsa_module_runs.h"

namespace attncheck::properties::nsa_module {
void add_relations(std::vector<Property>&) {}
}  // namespace attncheck::properties::nsa_module
