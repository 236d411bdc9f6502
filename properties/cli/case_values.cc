#include "properties/cli/case_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "properties/cli/command.h"
#include "properties/report/files.h"

namespace attncheck::properties {
namespace {

/// Numbers in rows of the terminal, indented.
void print_numbers(const char* head, const std::vector<double>& values) {
    constexpr std::size_t kWidth = 80, kIndent = 15;
    std::string line = fmt::format("    {:<10}", head);
    bool has_number = false;
    for (const double value : values) {
        const std::string number = print_value(value);
        if (has_number && line.size() + 1 + number.size() > kWidth) {
            say("{}\n", line);
            line = std::string(kIndent - 1, ' ');
        }
        line += " " + number;
        has_number = true;
    }
    say("{}\n", line);
}

std::vector<double> computed_of(const Tensor& tensor, const std::vector<std::uint32_t>& bits) {
    return ref::decode_all(tensor.type(), bits);
}

bool is_small(const Tensor& tensor) {
    return !tensor.shared_bytes && tensor.elements() > 0 && tensor.elements() <= kMostPrinted;
}

bool is_given(const Tensor& tensor) { return tensor.present && !tensor.withheld; }

/// A .npy file of version 1.0 (NumPy Enhancement Proposal 1): magic, header length, a dictionary
/// padded with blanks to a multiple of 64 bytes, then the elements.
std::string npy(const char* type, const std::vector<std::int64_t>& shape, const std::string& bytes) {
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type,
                                     fmt::join(shape, ","), shape.size() == 1 ? "," : "");
    constexpr std::size_t kPrefix = 10, kAlignment = 64;
    while ((kPrefix + header.size() + 1) % kAlignment != 0) header += ' ';
    header += '\n';
    std::string out("\x93NUMPY\x01\x00", 8);
    out += static_cast<char>(header.size() & 0xff);
    out += static_cast<char>(header.size() >> 8);
    return out + header + bytes;
}

template <class Number>
std::string bytes_of(const std::vector<double>& values) {
    std::string bytes(values.size() * sizeof(Number), '\0');
    for (std::size_t k = 0; k < values.size(); ++k) {
        const auto value = static_cast<Number>(values[k]);
        std::memcpy(bytes.data() + k * sizeof value, &value, sizeof value);
    }
    return bytes;
}

std::string npy_of(const Tensor& tensor, const std::vector<double>& values) {
    const std::vector<std::int64_t>& shape = tensor.buffer_shape;
    switch (tensor.type()) {
        case ref::Dtype::int32:
            return npy("<i4", shape, bytes_of<std::int32_t>(values));
        case ref::Dtype::int64:
            return npy("<i8", shape, bytes_of<std::int64_t>(values));
        case ref::Dtype::uint8:
            return npy("|u1", shape, bytes_of<std::uint8_t>(values));
        case ref::Dtype::boolean:
            return npy("|b1", shape, bytes_of<std::uint8_t>(values));
        default:
            return npy("<f4", shape, bytes_of<float>(values));
    }
}

}  // namespace

CaseValues values_of(const Operator& op, const Spec& spec, Call call, Candidate& candidate,
                     const ref::RoundingClass& rounding) {
    CaseValues out{std::move(call), {}, {}};
    if (spec.edits.empty()) out.expected = op.expected(spec, rounding);
    out.result = candidate.run(out.call, {});
    return out;
}

void print_arguments(const Call& call) {
    std::vector<std::string> absent;
    for (const Tensor& tensor : call.tensors) {
        if (!tensor.present) {
            absent.push_back(tensor.name);
            continue;
        }
        say("  {:<12} {} [{}] strides [{}]{}\n", tensor.name, ref::dtype_name(tensor.type()),
            fmt::join(tensor.shape, ","), fmt::join(tensor.strides, ","), tensor.output ? " output" : "");
        if (!tensor.output && is_small(tensor) && tensor.bits.size() == tensor.elements())
            print_numbers("", tensor.values());
    }
    for (const HostArray& array : call.arrays) {
        if (array.present)
            say("  {:<12} [{}]\n", array.name, fmt::join(array.values, ","));
        else
            absent.push_back(array.name);
    }
    for (const Number& number : call.numbers) say("  {:<12} {}\n", number.name, number.value);
    for (const Real& real : call.reals) say("  {:<12} {}\n", real.name, print_value(real.value));
    if (!absent.empty()) say("  {:<12} {}\n", "absent", fmt::join(absent, ", "));
}

bool print_outputs(const CaseValues& values) {
    bool any = false;
    for (std::size_t k = 0; k < values.call.tensors.size(); ++k) {
        const Tensor& tensor = values.call.tensors[k];
        if (!tensor.output || !is_given(tensor) || !is_small(tensor)) continue;
        if (!values.result.ok() && !values.expected) continue;
        any = true;
        say("{} [{}]\n", tensor.name, fmt::join(tensor.buffer_shape, ","));
        if (values.expected)
            for (const auto& [name, expected] : *values.expected)
                if (name == tensor.name) print_numbers("expected", expected.value);
        if (values.result.ok()) print_numbers("got", computed_of(tensor, values.result.outputs[k]));
    }
    return any;
}

void dump_values(const CaseValues& values, const std::string& case_line, const std::string& folder) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::runtime_error(fmt::format("cannot make the folder {}: {}", folder, error.message()));
    const auto write = [&](const std::string& name, const std::string& text) {
        write_file((fs::path(folder) / name).string(), text);
    };
    write("case.txt", case_line + "\n");
    for (std::size_t k = 0; k < values.call.tensors.size(); ++k) {
        const Tensor& tensor = values.call.tensors[k];
        if (!is_given(tensor)) continue;
        if (!tensor.output) {
            write(tensor.name + ".npy", npy_of(tensor, tensor.values()));
            continue;
        }
        if (values.result.ok())
            write(tensor.name + ".npy", npy_of(tensor, computed_of(tensor, values.result.outputs[k])));
        if (!values.expected) continue;
        for (const auto& [name, expected] : *values.expected) {
            if (name != tensor.name) continue;
            write(name + ".expected.npy", npy("<f8", tensor.buffer_shape, bytes_of<double>(expected.value)));
            write(name + ".bound.npy", npy("<f8", tensor.buffer_shape, bytes_of<double>(expected.bound)));
        }
    }
}

}  // namespace attncheck::properties
