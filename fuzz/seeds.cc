// Writes seed inputs of the fuzz targets, drawn by rapidcheck, and the dictionary of case lines.
//
// Usage: fuzz_seeds FOLDER [COUNT] [SEED]   COUNT files per target (default 64) in FOLDER/TARGET.
// The same seed writes the same files.
#include <rapidcheck.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "fuzz/call_mutator.h"
#include "fuzz/fuzzed_case.h"
#include "properties/report/json.h"

using namespace attncheck;

namespace {

using Seeds = rc::Gen<std::string>;

/// A generator of rapidcheck whose randomness is passed to the sampler.
Seeds drawn(const std::function<std::string(properties::Random&, int)>& sample) {
    return Seeds([sample](const rc::Random& random, int size) {
        rc::Random copy = random;
        properties::Random own(copy.next());
        return rc::shrinkable::just(sample(own, size));
    });
}

Seeds calls(std::size_t max_changes) {
    return drawn([max_changes](properties::Random& random, int size) {
        const auto bytes = fuzz::sampled_call(max_changes, size, random).bytes();
        return std::string(bytes.begin(), bytes.end());
    });
}

Seeds cases(std::string family, bool edits) {
    return drawn([family, edits](properties::Random& random, int) {
        const properties::Spec spec = fuzz::sampled_case(family, random);
        return properties::print(edits ? fuzz::mutated_case(spec, true, random) : spec);
    });
}

properties::PropertyReport property_report(properties::Random& random) {
    using properties::PropertyReport;
    PropertyReport report;
    report.op = random.pick<const char*>({"nsa_compress", "flash_attention_score"});
    report.property = random.pick<const char*>({"agreement", "memory"});
    report.status = static_cast<PropertyReport::Status>(random.between(0, 4));
    report.cases = random.between(0, 1000), report.declined = random.between(0, 3);
    report.worst_ratio = random.chance(10) ? 1.0 / 0.0 : static_cast<double>(random.between(0, 9));
    report.labels["ragged"] = random.between(0, 99);
    for (auto left = random.between(0, 2); left > 0; --left) {
        properties::Counterexample found;
        found.spec = found.original = fuzz::sampled_case("nsa_compress", random);
        found.failure = random.pick<const char*>({"mismatch output", "crashed SIGSEGV"});
        found.message = "worse than \"allowed\"";
        report.counterexamples.push_back(found);
    }
    return report;
}

/// One to three shards of the same run.
Seeds reports() {
    return drawn([](properties::Random& random, int) {
        std::string text;
        for (auto left = random.between(1, 3); left > 0; --left) {
            properties::RunReport report;
            report.candidate = "kernel", report.seed = 7;
            report.duration_s = static_cast<double>(random.between(0, 8)) / 4;
            report.interrupted = random.chance(10);
            for (auto count = random.between(0, 3); count > 0; --count)
                report.properties.push_back(property_report(random));
            text += (text.empty() ? "" : "%%\n") + properties::to_json(report);
        }
        return text;
    });
}

void write(const std::filesystem::path& folder, const Seeds& seeds, int count, std::uint64_t seed) {
    std::filesystem::create_directories(folder);
    for (int i = 0; i < count; ++i) {
        const int size = count > 1 ? 100 * i / (count - 1) : 100;
        rc::Random random(seed + static_cast<std::uint64_t>(i));
        std::ofstream(folder / ("seed-" + std::to_string(i)), std::ios::binary)
            << seeds(random, size).value();
    }
}

/// A dictionary of libFuzzer with the words of case lines: keys, names of values, layouts, data and
/// the marks of `set` and `break`. Follows from the descriptions, as case lines do.
void write_dictionary(const std::filesystem::path& path) {
    std::set<std::string> words{"set=[",      "break=[",   ".absent",    ".null",      ".rank=",
                                ".dtype=",    ".size=",    ".shape[0]=", "[0,0,0]=",   "all.dim=",
                                "all.dtype=", "nan",       "inf",        "-inf",       "-0",
                                "1e-45",      "2147483648", "4294967296", "seed=",     "data=",
                                "9223372036854775807", "-9223372036854775808",
                                "18446744073709551615", "all"};
    for (int layout = 0; layout <= static_cast<int>(properties::Layout::broadcast); ++layout)
        words.emplace(name_of(static_cast<properties::Layout>(layout)));
    for (int recipe = 0; recipe <= static_cast<int>(properties::Recipe::specials); ++recipe)
        words.emplace(name_of(static_cast<properties::Recipe>(recipe)));
    for (const properties::Schema* schema : properties::schemas()) {
        words.insert(schema->op);
        for (const auto& number : schema->numbers) {
            words.insert(number.key + "=");
            words.insert(number.names.begin(), number.names.end());
        }
        for (const auto& list : schema->lists) words.insert(list.key + "=");
        for (const auto& tensor : schema->tensors) words.insert(tensor.name + ".layout=");
    }
    std::ofstream out(path);
    for (const std::string& word : words) out << '"' << word << "\"\n";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s FOLDER [COUNT] [SEED]\n", argv[0]);
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    const int count = argc > 2 ? std::atoi(argv[2]) : 64;
    const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
    for (const auto& op : properties::operators()) {
        if (op->name().ends_with("_grad") || op->is_composition()) continue;
        const std::string name = op->name().substr(0, op->name().rfind("_score"));
        for (const char* question : {"_validation", "_rejection"})
            write(folder / (name + question), calls(fuzz::CallBytes::kMaxChanges), count, seed);
        write(folder / (name + "_acceptance"), cases(name, true), count, seed);
        write(folder / (name + "_values"), cases(name, false), count, seed);
    }
    write_dictionary(folder / "cases.dictionary");
    write(folder / "case_line", cases("", true), count, seed);
    write(folder / "aclnn_sequence", calls(48), count, seed);
    write(folder / "report_merge", reports(), count, seed);
    return 0;
}
