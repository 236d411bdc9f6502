// Reports as a run would make them.
#pragma once

#include <string>

#include "properties/report/results.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {

inline PropertyReport property_report(const char* property, PropertyReport::Status status, std::int64_t cases) {
    PropertyReport report;
    report.op = "nsa_compress";
    report.property = property;
    report.status = status;
    report.cases = cases;
    report.declined = 3;
    report.labels = {{"fp16", cases}};
    report.worst_ratio = 0.5;
    return report;
}

inline Counterexample counterexample(const std::string& failure) {
    Counterexample found;
    found.spec = spec_of(kPlainLine);
    found.original = spec_of(
        "nsa_compress{dtype=bf16 seq=[99] heads=4 dim=64 block=32 stride=16 data=normal seed=9}");
    found.failure = failure;
    found.message = "a < b & \"c\"\nsecond line";
    found.steps_taken = 4;
    found.certificate = "7 of 7 neighbours hold";
    return found;
}

inline RunReport run_report(PropertyReport::Status status = PropertyReport::Status::held) {
    RunReport report;
    report.candidate = "vendor <kernel> & \"co\"";
    report.library = "./it's.so";
    report.seed = 42;
    report.duration_s = 1.5;
    report.properties = {property_report("agreement", status, 10),
                         property_report("memory", PropertyReport::Status::held, 20)};
    if (status == PropertyReport::Status::falsified)
        report.properties[0].counterexamples = {counterexample("crashed: SIGSEGV")};
    return report;
}

}  // namespace attncheck::properties
