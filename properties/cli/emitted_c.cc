// The program in C: arrays, then loops over the same columns as the reference.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "properties/cli/emitted_c_text.h"
#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

using namespace c_text;

// ---- numbers as C has them ----

std::string number(double value) {
    if (std::isnan(value)) return "NAN";
    if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
    return fmt::format("{}", value);
}

const char* storage_of(ref::Dtype type) {
    switch (type) {
        case ref::Dtype::fp32:
            return "float";
        case ref::Dtype::int32:
            return "int";
        case ref::Dtype::fp16:
        case ref::Dtype::bf16:
            return "unsigned short";
        default:
            return "unsigned char";
    }
}

bool is_wide(ref::Dtype type) { return type == ref::Dtype::fp32; }

std::string element(const Tensor& tensor, std::uint32_t bits) {
    if (tensor.type() == ref::Dtype::int32) return fmt::format("{}", static_cast<std::int32_t>(bits));
    if (tensor.type() != ref::Dtype::fp32) return fmt::format("{}", bits);
    const double value = ref::decode(ref::Dtype::fp32, bits);
    return std::isfinite(value) ? fmt::format("{:a}f", value) : number(value);
}

/// "name[3] = {1, 2, 3}"; an array of nothing has one element, as C wants it.
template <class Values, class Word>
std::string array(const std::string& name, const Values& values, const Word& word) {
    std::vector<std::string> words;
    for (const auto& value : values) words.push_back(word(value));
    if (words.empty()) words.emplace_back("0");
    return fmt::format("{}[{}] = {{{}}}", name, words.size(), fmt::join(words, ", "));
}

template <class Number>
std::string integer(Number value) {
    return fmt::format("{}", value);
}

std::string room(const std::string& name, std::int64_t count) {
    return fmt::format("{}[{}]", name, std::max<Int>(count, 1));
}

// ---- parts of the program ----

std::string quoted(const std::string& text) {
    std::string out;
    for (const char c : text)
        out += c == '"' || c == '\\' ? fmt::format("\\{}", c) : std::string(1, c);
    return '"' + out + '"';
}

/// What a program declares, by type; one line for each type.
class Declarations {
public:
    void add(const std::string& type, std::string declared) {
        for (auto& [known, names] : types_)
            if (known == type) return names.push_back(std::move(declared));
        types_.push_back({type, {std::move(declared)}});
    }
    void add_integer(std::string declared) { add("long long", std::move(declared)); }
    void add_double(std::string declared) { add("double", std::move(declared)); }
    std::string text() const {
        std::string out;
        for (const auto& [type, names] : types_)
            out += fmt::format("static {} {};\n", type, fmt::join(names, ", "));
        return out;
    }

private:
    std::vector<std::pair<std::string, std::vector<std::string>>> types_;
};

Declarations arguments(const EmittedCase& made) {
    Declarations out;
    for (const Tensor* tensor : made.inputs())
        out.add(storage_of(tensor->type()),
                tensor->shared_bytes
                    ? room(tensor->name, static_cast<Int>(tensor->elements()))
                    : array(tensor->name, tensor->bits, [&](std::uint32_t bits) {
                          return element(*tensor, bits);
                      }));
    for (const HostArray& one : made.call.arrays)
        if (one.present) out.add_integer(array(one.name, one.values, integer<Int>));
    for (const Number& one : made.call.numbers)
        out.add_integer(fmt::format("{} = {}", one.name, one.value));
    for (const Real& one : made.call.reals)
        out.add_double(fmt::format("{} = {}", one.name, number(one.value)));
    for (const Text& one : made.call.texts)
        if (one.value) out.add("char", fmt::format("{}[] = {}", one.name, quoted(*one.value)));
    for (const Tensor* tensor : made.outputs())
        out.add(storage_of(tensor->type()),
                room(tensor->name, static_cast<Int>(tensor->elements())));
    for (const auto& [name, bound] : made.bounds) out.add_double(array(name + "_bound", bound, number));
    return out;
}

std::string kernel(const EmittedCase& made) {
    const auto words = [](const std::vector<const Tensor*>& tensors) {
        std::vector<std::string> out;
        for (const Tensor* tensor : tensors)
            out.push_back(fmt::format("{} {} [{}]", tensor->name, ref::dtype_name(tensor->type()),
                                      fmt::join(tensor->shape, ",")));
        return out;
    };
    return fmt::format(fmt::runtime(kKernel), fmt::join(words(made.inputs()), ", "),
                       fmt::join(words(made.outputs()), ", "));
}

/// Elements of tensors in binary64, and the comparison of outputs.
std::string reading(const EmittedCase& made) {
    bool is_bf16 = false;
    for (const Tensor& tensor : made.call.tensors) is_bf16 |= tensor.type() == ref::Dtype::bf16;
    const int fraction = is_bf16 ? 7 : 10, exponent = 15 - fraction;
    // What the kernel leaves unwritten must not be right by chance.
    std::string fills;
    for (const Tensor* tensor : made.outputs())
        fills += fmt::format(" for (size_t b = 0; b < sizeof {0}; ++b) ((char *){0})[b] = -1;", tensor->name);
    return fmt::format(fmt::runtime(kHalf), is_bf16 ? "bf16" : "fp16", fraction, exponent,
                       (1 << exponent) - 1, (1 << fraction) - 1, (1 << (exponent - 1)) - 1 + fraction,
                       15, fills) +
           kJudge;
}

std::string first_of(const EmittedRows& rows) {
    return rows.is_plain() ? "NULL" : "first_" + rows.tensor;
}

/// The end of the program: every output that has an expectation.
class Judgements {
public:
    explicit Judgements(const EmittedCase& made) : made_(made) {}
    void add(const std::string& tensor, const std::string& want, Int stride, const std::string& first,
             Int rows, Int width) {
        if (made_.bound_of(tensor) == nullptr) return;
        words_.push_back(fmt::format("judge(\"{0}\", {0}, {1:d}, {0}_bound, {2}, {3}, {4}, {5}, {6})", tensor,
                                     is_wide(made_.call.tensor(tensor).type()), want, stride, first, rows,
                                     width));
    }
    /// Of one row.
    void add(const std::string& tensor, const std::string& want) {
        const auto size = static_cast<Int>(made_.call.tensor(tensor).elements());
        add(tensor, want, size, "NULL", 1, size);
    }
    std::string text() const {
        std::string out = "    return ";
        for (std::size_t k = 0; k < words_.size(); ++k)
            out += words_[k] + (k + 1 == words_.size() ? ";\n}\n" : k % 3 == 2 ? " |\n           " : " | ");
        return out;
    }

private:
    const EmittedCase& made_;
    std::vector<std::string> words_;
};

/// Attention: what the letters of the equations hold, and how wide their rows are.
class Attention {
public:
    explicit Attention(const EmittedCase& made)
        : made_(made), of_(*made.attention), sink_given_(is_given("sink")) {}

    std::string text() const {
        return declarations() + kernel(made_) + reading(made_) + kLoad + main();
    }

private:
    bool is_given(const std::string& tensor) const {
        return made_.call.description->tensor(tensor) >= 0 && made_.call.tensor(tensor).present;
    }
    Int rows_of(const std::string& letter) const {
        const bool of_keys = letter == "K" || letter == "V" || letter == "dK" || letter == "dV";
        return of_keys ? of_.shape.kv_rows * of_.shape.kv_heads
                       : of_.shape.query_rows * of_.shape.query_heads;
    }
    Int width_of(const std::string& letter) const {
        if (letter == "Q" || letter == "K" || letter == "dQ" || letter == "dK") return of_.shape.head_dim;
        return letter == "O" || letter == "V" || letter == "dO" || letter == "dV" ? of_.shape.value_dim : 1;
    }
    /// Names of C: an input or an output may be called lse, too.
    static std::string name_of(const std::string& letter) { return letter == "lse" ? "lse_" : letter; }

    void declare_columns(Declarations& out) const {
        std::vector<Int> row, begin{0}, key, place;
        std::vector<double> bias, gain;
        for (const EmittedAttention::Row& one : of_.rows) {
            row.push_back(one.number);
            begin.push_back(begin.back() + std::ssize(one.columns));
            for (const ref::KeyColumn& column : one.columns) {
                key.push_back(column.key);
                place.push_back(column.place);
                bias.push_back(column.bias);
                gain.push_back(of_.gain(column));
            }
        }
        out.add_integer(array("row", row, integer<Int>));
        out.add_integer(array("begin", begin, integer<Int>));
        out.add_integer(array("key_", key, integer<Int>));
        if (of_.bias_elements > 0) out.add_integer(array("place", place, integer<Int>));
        if (of_.has_bias) out.add_double(array("bias_", bias, number));
        if (of_.keep_prob < 1) out.add_double(array("gain", gain, number));
        out.add_double(room("logit", std::ssize(key)));
        out.add_double(room("slope", std::ssize(key)));
    }

    std::string declarations() const {
        Declarations out = arguments(made_);
        for (const auto& [name, value] :
             {std::pair{"ROWS", std::ssize(of_.rows)}, {"HEADS", of_.shape.query_heads},
              {"KV_HEADS", of_.shape.kv_heads}, {"GROUP", of_.shape.group()},
              {"DIM", of_.shape.head_dim}, {"VALUE_DIM", of_.shape.value_dim}})
            out.add_integer(fmt::format("{} = {}", name, value));
        declare_columns(out);
        for (const auto* side : {&of_.inputs, &of_.outputs})
            for (const auto& [letter, parts] : *side)
                for (const EmittedRows& rows : parts)
                    if (!rows.is_plain())
                        out.add_integer(array("first_" + rows.tensor, rows.first, integer<Int>));
        std::vector<std::string> letters{"Q", "K", "V", "O", "top", "total"};
        if (forms_statistics() || of_.statistics == Statistics::lse) letters.emplace_back("lse");
        if (of_.gradient) letters.insert(letters.end(), {"dO", "dQ", "dK", "dV"});
        for (const std::string& letter : letters)
            out.add_double(room(name_of(letter), rows_of(letter) * width_of(letter)));
        if (of_.gradient && sink_given_) out.add_double(room("dsink_", of_.shape.query_heads));
        if (of_.bias_elements > 0) out.add_double(room("dbias_", of_.bias_elements));
        return out.text();
    }

    /// The mask of documented contents is filled before the kernel is called.
    std::string filled_mask() const {
        for (const Tensor* tensor : made_.inputs())
            if (tensor->shared_bytes)
                return fmt::format("    for (long k = 0; k < {0} * {1}; ++k) {2}[k] = k / {1} < 2048 ? k % {1} > k / {1} : "
                                   "k % {1} >= 1024; /* as documented, 1 = hidden */\n",
                                   tensor->shape.front(), tensor->shape.back(), tensor->name);
        return "";
    }

    std::string loads() const {
        std::vector<std::string> words;
        for (const auto& [letter, parts] : of_.inputs) {
            Int begin = 0;
            for (const EmittedRows& rows : parts) {
                words.push_back(fmt::format("load({} + {}, {}, {}, {:d}, {}, {}, {})", name_of(letter), begin,
                                            width_of(letter), rows.tensor,
                                            is_wide(made_.call.tensor(rows.tensor).type()), first_of(rows),
                                            rows_of(letter), rows.width));
                begin += rows.width;
            }
        }
        std::string out;
        for (std::size_t k = 0; k < words.size(); ++k)
            out += (k % 4 == 0 ? "    " : " ") + words[k] + (k % 4 == 3 || k + 1 == words.size() ? ";\n" : ",");
        return out;
    }

    bool forms_statistics() const { return !of_.gradient || of_.statistics == Statistics::none; }
    std::string statistics() const {
        constexpr const char* kLimit = "3.4028234663852886e38";
        if (forms_statistics())
            return fmt::format(fmt::runtime(kStatistics), sink_given_ ? " + exp(sink[n] - m)" : "", kLimit);
        return of_.statistics == Statistics::lse ? fmt::format(fmt::runtime(kGivenLse), kLimit) : "";
    }

    std::string main() const {
        const std::string gain = of_.keep_prob < 1 ? "gain[c] * " : "";
        std::string scores = fmt::format("s *= {};", number(of_.scale));
        if (of_.softcap > 0) scores += fmt::format(" cap = tanh(s / {0}), s = {0} * cap;", number(of_.softcap));
        std::string out = "int main(void) {\n" + filled_mask() + "    if (unset(), kernel()) return 1;\n" + loads();
        out += fmt::format(fmt::runtime(kLogits),
                           sink_given_ && forms_statistics() ? "sink[n]" : "-INFINITY", scores,
                           of_.has_bias ? " + bias_[c]" : "",
                           forms_statistics() ? ", m = logit[c] <= m ? m : logit[c]" : "", statistics(),
                           of_.gradient ? ", delta = 0" : "");
        if (of_.gradient)
            out += fmt::format(
                fmt::runtime(kBackward), gain, number(of_.scale),
                of_.bias_elements > 0 ? "            dbias_[place[c]] += ds;\n" : "",
                sink_given_ ? "        if (sink[n] != -INFINITY) dsink_[n] -= exp(sink[n] - top[r]) / total[r] * delta;\n"
                            : "");
        else
            out += fmt::format(fmt::runtime(kForward), gain);
        Judgements judged(made_);
        for (const auto& [letter, parts] : of_.outputs) {
            Int begin = 0;
            for (const EmittedRows& rows : parts) {
                judged.add(rows.tensor, fmt::format("{} + {}", name_of(letter), begin), width_of(letter),
                           first_of(rows), rows_of(letter), rows.width);
                begin += width_of(letter) > 1 ? rows.width : 0;
            }
        }
        for (const std::string& sum : of_.sums) judged.add(sum, sum + "_");
        return out + "    }\n" + judged.text();
    }

    const EmittedCase& made_;
    const EmittedAttention& of_;
    bool sink_given_;
};

std::string merge(const EmittedCase& made) {
    const auto& shape = made.call.tensor("parts").shape;
    const Int rows = shape[1] * shape[2];
    Declarations declared = arguments(made);
    declared.add_integer(fmt::format("PARTS = {}, ROWS = {}, DIM = {}", shape[0], rows, shape[3]));
    declared.add_double(room("O", rows * shape[3]));
    declared.add_double(room("lse_", rows));
    Judgements judged(made);
    judged.add("out", "O", shape[3], "NULL", rows, shape[3]);
    if (made.call.tensor("lse").present) judged.add("lse", "lse_");
    return declared.text() + kernel(made) + reading(made) +
           fmt::format(fmt::runtime(kMerge), is_wide(made.call.tensor("parts").type()) ? 1 : 0) + judged.text();
}

/// What is expected as numbers, where the program has no equations.
std::string values(const EmittedCase& made) {
    Declarations declared = arguments(made);
    Judgements judged(made);
    for (const auto& [name, value] : made.values) {
        declared.add_double(array(name + "_want", value, number));
        judged.add(name, name + "_want");
    }
    return declared.text() + kernel(made) + reading(made) +
           "int main(void) {\n    if (unset(), kernel()) return 1;\n" + judged.text();
}

std::string compression(const EmittedCase& made) {
    const EmittedCompression& of = *made.compression;
    const Tensor& input = made.call.tensor("input");
    Declarations declared = arguments(made);
    declared.add_integer(array("first_token", of.first_token, integer<Int>));
    declared.add_integer(fmt::format("BLOCKS = {}, BLOCK = {}, HEADS = {}, DIM = {}", of.first_token.size(), of.block,
                                     input.shape[1], input.shape[2]));
    Judgements judged(made);
    const std::vector<std::pair<const char*, const char*>> outputs =
        of.gradient ? std::vector<std::pair<const char*, const char*>>{{"input_grad", "dX"}, {"weight_grad", "dW"}}
                    : std::vector<std::pair<const char*, const char*>>{{"output", "Y"}};
    for (const auto& [tensor, letter] : outputs) {
        declared.add_double(room(letter, static_cast<Int>(made.call.tensor(tensor).elements())));
        judged.add(tensor, letter);
    }
    const std::string body = fmt::format(fmt::runtime(of.gradient ? kCompressBackward : kCompressForward),
                                         is_wide(input.type()) ? 1 : 0);
    return declared.text() + kernel(made) + reading(made) + fmt::format(fmt::runtime(kCompress), body) +
           judged.text();
}

}  // namespace

std::string emitted_c(const EmittedCase& made) {
    return fmt::format(fmt::runtime(kCHead), made.line, made.rounding, left_out_text(made, false)) +
           (made.attention     ? Attention(made).text()
            : made.compression ? compression(made)
            : made.is_merge    ? merge(made)
                               : values(made));
}

}  // namespace attncheck::properties
