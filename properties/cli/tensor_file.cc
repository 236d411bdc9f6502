#include "properties/cli/tensor_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <type_traits>
#include <utility>

#include "properties/case/printable.h"
#include "properties/cli/command.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// One entry as the file has it: bytes, little-endian, row-major; or a text.
struct Entry {
    std::string name, type;  ///< type of NumPy: "f4", "i8", "b1", "bf16", ..., "text"
    std::vector<Int> shape;
    std::string bytes;
};

struct TypeName {
    const char *numpy, *safetensors;
    ref::Dtype dtype;
};
constexpr TypeName kTypes[] = {
    {"f4", "F32", ref::Dtype::fp32},          {"f2", "F16", ref::Dtype::fp16},
    {"bf16", "BF16", ref::Dtype::bf16},       {"i4", "I32", ref::Dtype::int32},
    {"u1", "U8", ref::Dtype::uint8},          {"b1", "BOOL", ref::Dtype::boolean},
    {"e5m2", "F8_E5M2", ref::Dtype::fp8_e5m2}, {"e4m3fn", "F8_E4M3", ref::Dtype::fp8_e4m3fn},
    {"i8", "I64", ref::Dtype::int64}};

/// Throws UsageError for a shape that no tensor has.
Int elements_of(const std::string& name, const std::vector<Int>& shape) {
    Int total = 1;
    for (const Int extent : shape)
        if (extent < 0 || __builtin_mul_overflow(total, extent, &total))
            throw UsageError(fmt::format("{} has shape [{}], allowed: extents from 0, and less than 2^63 elements",
                                         name, fmt::join(shape, ",")));
    return total;
}

template <class Number>
Number number_at(const std::string& bytes, std::size_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(Number)) throw UsageError("it is cut short");
    Number value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// ---- .npy and .npz ----

std::string after(const std::string& text, const std::string& key) {
    const auto at = text.find(key);
    if (at == std::string::npos) throw UsageError("an array has no " + key + " in its header");
    return text.substr(at + key.size());
}

/// UTF-32 as NumPy keeps texts; other characters than those of ASCII become '?'.
std::string text_of(const std::string& utf32) {
    std::string out;
    for (std::size_t at = 0; at + 4 <= utf32.size(); at += 4) {
        const auto c = number_at<std::uint32_t>(utf32, at);
        if (c != 0) out += c < 128 ? static_cast<char>(c) : '?';
    }
    return out;
}

Int extent_in(const std::string& name, const std::string& text) {
    const char* const begin = text.data() + std::min(text.find_first_not_of(' '), text.size());
    Int extent = 0;
    if (std::from_chars(begin, text.data() + text.size(), extent).ec != std::errc{})
        throw UsageError(fmt::format("{} has the shape ({}) in its header, expected whole numbers", name, text));
    return extent;
}

Entry read_npy(std::string name, const std::string& file) {
    if (!file.starts_with("\x93NUMPY")) throw UsageError(name + " is no .npy array");
    const bool is_long = number_at<std::uint8_t>(file, 6) > 1;
    const std::size_t length = is_long ? number_at<std::uint32_t>(file, 8)
                                       : number_at<std::uint16_t>(file, 8);
    const std::size_t begin = is_long ? 12 : 10;
    if (begin + length > file.size()) throw UsageError(name + " is cut short");
    const std::string header = file.substr(begin, length);
    Entry entry{.name = std::move(name), .type = {}, .shape = {}, .bytes = file.substr(begin + length)};
    std::string type = after(header, "'descr': '");
    type = type.substr(0, type.find('\''));
    if (type.starts_with('>')) throw UsageError(entry.name + " is big-endian, expected little-endian");
    entry.type = type.substr(type.find_first_not_of("<|="));
    if (entry.type == "V2") entry.type = "bf16";  // what NumPy writes for ml_dtypes.bfloat16
    if (entry.type == "V1")
        throw UsageError(entry.name + " is of an 8-bit type that .npz does not name; save as .safetensors");
    std::string shape = after(header, "'shape': (");
    shape = shape.substr(0, shape.find(')'));
    std::istringstream numbers(shape);
    for (std::string one; std::getline(numbers, one, ',');)
        if (one.find_first_not_of(' ') != std::string::npos) entry.shape.push_back(extent_in(entry.name, one));
    if (after(header, "'fortran_order': ").starts_with("True") && entry.shape.size() > 1)
        throw UsageError(entry.name +
                         " is in Fortran order; save numpy.ascontiguousarray() of it");
    if (entry.type.starts_with('U')) {
        entry.bytes = text_of(entry.bytes);
        entry.type = "text";
    }
    return entry;
}

std::vector<Entry> read_npz(const std::string& file) {
    constexpr std::uint32_t kEnd = 0x06054b50, kEntry = 0x02014b50, kIn64 = 0xffffffff;
    constexpr std::size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
    std::size_t end = file.size() < kEndBytes ? 0 : file.size() - kEndBytes;
    while (end > 0 && number_at<std::uint32_t>(file, end) != kEnd) --end;
    if (file.size() < kEndBytes || number_at<std::uint32_t>(file, end) != kEnd)
        throw UsageError("it is no .npz archive");
    std::vector<Entry> out;
    std::size_t at = number_at<std::uint32_t>(file, end + 16);
    for (int k = number_at<std::uint16_t>(file, end + 10); k > 0; --k) {
        if (number_at<std::uint32_t>(file, at) != kEntry) throw UsageError("it is no .npz archive");
        const auto method = number_at<std::uint16_t>(file, at + 10),
                   name_bytes = number_at<std::uint16_t>(file, at + 28),
                   extra_bytes = number_at<std::uint16_t>(file, at + 30),
                   comment_bytes = number_at<std::uint16_t>(file, at + 32);
        const std::size_t bytes = number_at<std::uint32_t>(file, at + 20),
                          local = number_at<std::uint32_t>(file, at + 42);
        std::string name = file.substr(at + kEntryBytes, name_bytes);
        if (method != 0)
            throw UsageError(name + " is compressed; save with numpy.savez or as .safetensors");
        if (bytes == kIn64 || local == kIn64)
            throw UsageError("it is larger than 4 GiB; save as .safetensors");
        const std::size_t data = local + kLocalBytes + number_at<std::uint16_t>(file, local + 26) +
                                 number_at<std::uint16_t>(file, local + 28);
        if (data + bytes > file.size()) throw UsageError(name + " is cut short");
        if (name.ends_with(".npy")) name.resize(name.size() - 4);
        out.push_back(read_npy(std::move(name), file.substr(data, bytes)));
        at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
    }
    return out;
}

// ---- .safetensors ----

std::vector<Entry> read_safetensors(const std::string& file) {
    const auto length = number_at<std::uint64_t>(file, 0);
    if (length > file.size() - sizeof length) throw UsageError("it is no .safetensors file");
    const std::string data = file.substr(sizeof length + length);
    std::vector<Entry> out;
    try {
        const auto header = nlohmann::json::parse(file.substr(sizeof length, length));
        for (const auto& [name, value] : header.items()) {
            if (name == "__metadata__") {
                for (const auto& [key, text] : value.items())
                    out.push_back({key, "text", {}, text.get<std::string>()});
                continue;
            }
            const auto type = value.at("dtype").get<std::string>();
            const auto* const known = std::ranges::find(kTypes, type, &TypeName::safetensors);
            const auto begin = value.at("data_offsets").at(0).get<std::size_t>(),
                       end = value.at("data_offsets").at(1).get<std::size_t>();
            if (begin > end || end > data.size()) throw UsageError(name + " is cut short");
            out.push_back({name, known == std::end(kTypes) ? type : known->numpy,
                           value.at("shape").get<std::vector<Int>>(),
                           data.substr(begin, end - begin)});
        }
    } catch (const nlohmann::json::exception&) {
        throw UsageError("its header is no JSON of .safetensors");
    }
    return out;
}

// ---- entries as arguments ----

std::vector<Int> integers_in(const Entry& entry) {
    std::vector<Int> out;
    const Int total = elements_of(entry.name, entry.shape);
    for (Int k = 0; k < total; ++k) {
        const auto at = static_cast<std::size_t>(k);
        if (entry.type == "i8")
            out.push_back(number_at<std::int64_t>(entry.bytes, 8 * at));
        else if (entry.type == "i4")
            out.push_back(number_at<std::int32_t>(entry.bytes, 4 * at));
        else
            throw UsageError(fmt::format("{} is of type {}, expected int64", entry.name, entry.type));
    }
    return out;
}

template <class Number>
Number number_in_text(const Entry& entry) {
    Number value = 0;
    const char* const end = entry.bytes.data() + entry.bytes.size();
    if (const auto read = std::from_chars(entry.bytes.data(), end, value);
        read.ec != std::errc{} || read.ptr != end)
        throw UsageError(fmt::format("{} is '{}', expected a{} number", entry.name, entry.bytes,
                                     std::is_integral_v<Number> ? " whole" : ""));
    return value;
}

void require_one(const Entry& entry) {
    if (elements_of(entry.name, entry.shape) != 1)
        throw UsageError(fmt::format("{} has shape [{}], expected one number", entry.name,
                                     fmt::join(entry.shape, ",")));
}

Int integer_in(const Entry& entry) {
    if (entry.type == "text") return number_in_text<Int>(entry);
    require_one(entry);
    return integers_in(entry).front();
}

double real_in(const Entry& entry) {
    if (entry.type == "text") return number_in_text<double>(entry);
    require_one(entry);
    if (entry.type == "f8") return number_at<double>(entry.bytes, 0);
    if (entry.type == "f4") return number_at<float>(entry.bytes, 0);
    return static_cast<double>(integers_in(entry).front());
}

void add_tensor(const Entry& entry, GivenCall& call) {
    const auto* const type = std::ranges::find(kTypes, entry.type, &TypeName::numpy);
    if (type == std::end(kTypes))
        throw UsageError(fmt::format("{} is of type {}, allowed: fp16, bf16, fp32, fp8, int32, uint8, bool",
                                     entry.name, entry.type));
    const auto size = static_cast<std::size_t>(ref::dtype_size(type->dtype));
    const auto total = static_cast<std::size_t>(elements_of(entry.name, entry.shape));
    if (entry.bytes.size() != total * size)
        throw UsageError(fmt::format("{} has {} bytes, its shape [{}] needs {}", entry.name,
                                     entry.bytes.size(), fmt::join(entry.shape, ","), total * size));
    call.arguments.tensors[entry.name] = {type->dtype, entry.shape};
    std::vector<std::uint32_t>& bits = call.bits[entry.name];
    bits.resize(total);
    if (size == sizeof(std::uint32_t) && total > 0)
        std::memcpy(bits.data(), entry.bytes.data(), entry.bytes.size());
    else
        for (std::size_t k = 0; k < total; ++k)
            std::memcpy(&bits[k], entry.bytes.data() + k * size, std::min<std::size_t>(size, 4));
}

template <class Fields>
bool has(const Fields& fields, const std::string& name) {
    return std::ranges::any_of(fields, [&](const auto& field) { return field.name == name; });
}

void add(const Entry& entry, const Description& d, GivenCall& call) {
    if (has(d.tensors, entry.name)) return add_tensor(entry, call);
    if (has(d.arrays, entry.name)) {
        call.arguments.arrays[entry.name] = integers_in(entry);
    } else if (has(d.texts, entry.name)) {
        if (entry.type != "text")
            throw UsageError(fmt::format("{} is of type {}, expected a text", entry.name, entry.type));
        call.arguments.texts[entry.name] = entry.bytes;
    } else if (has(d.integers, entry.name)) {
        call.arguments.integers[entry.name] = integer_in(entry);
    } else if (has(d.reals, entry.name)) {
        call.arguments.reals[entry.name] = real_in(entry);
    } else {
        std::vector<std::string> known;
        const auto add_names = [&](const auto& fields) {
            for (const auto& field : fields) known.push_back(field.name);
        };
        add_names(d.tensors), add_names(d.arrays), add_names(d.texts);
        add_names(d.integers), add_names(d.reals);
        throw UsageError(fmt::format("{} is no argument of {}, those are: {}", entry.name, d.op,
                                     fmt::join(known, ", ")));
    }
}

}  // namespace

TensorFile read_tensor_file(const std::string& path, const std::string& operator_named) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw UsageError("cannot read " + path);
    std::ostringstream whole;
    whole << in.rdbuf();
    const std::string file = std::move(whole).str();
    try {
        const std::vector<Entry> entries = path.ends_with(".safetensors") ? read_safetensors(file)
                                                                          : read_npz(file);
        TensorFile out;
        out.op = operator_named;
        for (const Entry& entry : entries)
            if (entry.name == "op" && out.op.empty()) out.op = entry.bytes;
        if (out.op.empty())
            throw UsageError("it does not say its operator; give --op or an entry 'op'");
        const Operator* const op = find_operator(out.op);
        if (!op) {
            std::vector<std::string> known;
            for (const auto& one : operators()) known.push_back(one->name());
            throw UsageError(fmt::format("no operator '{}', known: {}", out.op, fmt::join(known, " ")));
        }
        for (const Entry& entry : entries)
            if (entry.name != "op") add(entry, op->schema(), out.call);
        return out;
    } catch (const UsageError& e) {
        constexpr std::size_t kLongest = 2000;  // names of all arguments; a header may hold anything
        throw UsageError(fmt::format("{}: {}", path, printable_line(e.what(), kLongest)));
    }
}

}  // namespace attncheck::properties
