// `attncheck cases`: the language of case lines, from the descriptions of the operators.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/cli/command.h"
#include "properties/cli/explain_command.h"
#include "properties/cli/names.h"

namespace attncheck::properties {
namespace {

constexpr std::size_t kWidth = 80;

/// A row of the table: the field, its values, broken at blanks, and an example behind them.
void row(const std::string& field, const std::string& values, const std::string& fallback,
         const std::string& example) {
    constexpr std::size_t kField = 20, kIndent = 22;
    std::string text = fmt::format("  {:<{}}", field, kField - 2);
    if (text.size() < kIndent) text.resize(kIndent, ' ');
    std::size_t column = text.size();
    std::string words = values;
    if (!fallback.empty()) words += fmt::format("; left out: {}", fallback);
    words += fmt::format("; {}", example);
    std::size_t at = 0;
    while (at < words.size()) {
        const std::size_t end = std::min(words.find(' ', at), words.size());
        const std::string word = words.substr(at, end - at);
        if (column + word.size() > kWidth) {
            while (text.ends_with(' ')) text.pop_back();
            text += "\n" + std::string(kIndent, ' ');
            column = kIndent;
        }
        text += word + " ";
        column += word.size() + 1;
        at = end + 1;
    }
    while (text.ends_with(' ')) text.pop_back();
    say("{}\n", text);
}

void number_row(const NumberField& field, std::int64_t shown) {
    const std::string values =
        !field.names.empty() ? fmt::format("{}", fmt::join(field.names, " "))
        : field.step > 1     ? fmt::format("{} to {}, steps of {}", field.min, field.max, field.step)
                             : fmt::format("{} to {}", field.min, field.max);
    const bool is_required = field.fallback < field.min;
    // A value that is left out is not printed: an example shows another one.
    if (!is_required && shown == field.fallback)
        shown = shown + field.step <= field.max ? shown + field.step : field.min;
    row(field.key, values, is_required ? "" : value_name(field, field.fallback),
        fmt::format("{}={}", field.key, value_name(field, shown)));
}

std::vector<std::string> recipes() {
    std::vector<std::string> names;
    for (int k = 0; k <= static_cast<int>(Recipe::specials); ++k)
        names.emplace_back(name_of(static_cast<Recipe>(k)));
    return names;
}

std::vector<std::string> layouts() {
    std::vector<std::string> names;
    for (int k = 0; k < kLayouts; ++k) names.emplace_back(name_of(static_cast<Layout>(k)));
    return names;
}

/// A case of what people run: the same one at every call.
Spec example_of(const Operator& op) {
    Random random(1);
    return op.plain(random, Profile::ascend910b);
}

void print_language() {
    say("A case is a line of text that determines everything, data included:\n\n"
        "  OPERATOR{{FIELD=VALUE ... data=RECIPE seed=NUMBER}}\n\n"
        "Fields stand in any order; those with a default may be left out. A list may say\n"
        "how often an entry is repeated: [5*1000] is a thousand times 5.\n\n");
    row("data", fmt::format("{}", fmt::join(recipes(), " ")), "", "data=normal");
    row("seed", "0 to 2^64 - 1: selects the random values of a recipe", "", "seed=7");
    row("set", "single elements, by tensor and index", "no element", "set=[input[3,0,5]=1.5]");
    row("TENSOR.layout", fmt::format("{}", fmt::join(layouts(), " ")), "dense", "input.layout=reversed");
    row("outputs", "the outputs that are asked for", "all", "outputs=out");
    row("break", "changes of arguments, which may make the call illegal", "no change",
        "break=[compress_stride=0]");
    say("\nOperators; `attncheck cases OPERATOR` shows the fields of one:\n\n");
    for (const auto& op : operators()) say("  {}\n", print(example_of(*op)));
}

}  // namespace

int cases_command(const std::string& name) {
    if (name.empty()) {
        print_language();
        return kHeld;
    }
    const Operator& op = operator_named(name);
    const Description& d = op.schema();
    const Spec example = example_of(op);
    say("{}\n\n", print(example));
    for (std::size_t i = 0; i < d.lists.size(); ++i)
        row(d.lists[i].key,
            fmt::format("lengths of up to {} sequences, {} to {} each", d.lists[i].max_size, d.lists[i].min,
                        d.lists[i].max),
            "", fmt::format("{}=[{}]", d.lists[i].key, fmt::join(example.lists[i], ",")));
    for (std::size_t i = 0; i < d.numbers.size(); ++i) number_row(d.numbers[i], example.numbers[i]);
    row("data", fmt::format("{}", fmt::join(recipes(), " ")), "", "data=normal");
    row("seed", "0 to 2^64 - 1", "", "seed=7");
    std::vector<std::string> inputs, optional;
    for (const TensorField& tensor : d.tensors) {
        if (!tensor.output && !tensor.derived) inputs.push_back(tensor.name);
        if (tensor.optional) optional.push_back(tensor.name);
    }
    if (!inputs.empty())
        row("set", fmt::format("elements of {}", fmt::join(inputs, " ")), "no element",
            fmt::format("set=[{}[{}]=1.5]", inputs[0],
                        fmt::join(std::vector<int>(op.shapes(example)[static_cast<std::size_t>(
                                                                          d.tensor(inputs[0]))]
                                                       .size()),
                                  ",")));
    if (!inputs.empty())
        row("TENSOR.layout", fmt::format("{}", fmt::join(layouts(), " ")), "dense",
            inputs[0] + ".layout=gap");
    if (!optional.empty())
        row("outputs", fmt::format("may leave out {}", fmt::join(optional, " ")), "all outputs",
            "outputs=" + [&] {
                std::vector<std::string> kept;
                for (const TensorField& tensor : d.tensors)
                    if (tensor.output && !tensor.optional) kept.push_back(tensor.name);
                return kept.empty() ? optional[0] : fmt::format("{}", fmt::join(kept, ","));
            }());
    return kHeld;
}

}  // namespace attncheck::properties
