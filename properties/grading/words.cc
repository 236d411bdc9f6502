#include "properties/grading/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "properties/report/files.h"

namespace attncheck::properties {
namespace {

constexpr std::string_view kBegin = "<!-- words:begin -->\n", kEnd = "<!-- words:end -->";
constexpr std::size_t kNamed = 8;  ///< ids in one row of the table

std::vector<std::string> families_of(const std::vector<MutantScore>& scores) {
    std::vector<std::string> out;
    for (const MutantScore& score : scores)
        if (std::ranges::find(out, score.mutant.family) == out.end())
            out.push_back(score.mutant.family);
    return out;
}

std::string share_of(const std::vector<MutantScore>& scores, const std::string& family) {
    int killed = 0, all = 0;
    for (const MutantScore& score : scores) {
        if (!family.empty() && score.mutant.family != family) continue;
        ++all;
        killed += score.killed;
    }
    return fmt::format("{}/{}", killed, all);
}

std::string survivors_of(const std::vector<MutantScore>& scores) {
    std::vector<std::string> ids;
    for (const MutantScore& score : scores)
        if (!score.killed) ids.push_back(score.mutant.id + (score.cut_off() ? " (cut off)" : ""));
    const std::size_t more = ids.size() > kNamed ? ids.size() - kNamed : 0;
    ids.resize(ids.size() - more);
    return fmt::format("{}{}", fmt::join(ids, " "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

const std::vector<std::string>& graded_words() {
    static const std::vector<std::string> words = {
        "order=any",   "tile=1",       "stats=lse",   "split=lse",  "split=half", "exp=400",
        "ftz=all",     "p=kept",      "scores=half",  "delta=half",  "group=half", "steps=half", "tanh=8192", "in=bf16x3",
        "in=bf16x2",   "in=tf32",      "in=tf32-truncating", "in=bf16",     "scale=fp32",  "scale=half",
        "acc=fp32-truncating",
        "acc=half",    "hidden=times_zero"};
    return words;
}

std::vector<WordScore> grade_words(const std::vector<Mutant>& mutants, MutationOptions options,
                                   int cases, std::ostream& out) {
    std::vector<WordScore> all;
    const std::string killers =
        (std::filesystem::temp_directory_path() / fmt::format("attncheck.words.{}.json", getpid()))
            .string();
    Grades grades = grade(mutants, options, out);
    all.push_back({{}, std::move(grades.scores)});
    write_file(killers, scores_json(all.front().scores));
    options.earlier = killers;
    options.run_cases = cases;
    std::vector<Mutant> killed;
    for (const MutantScore& score : all.front().scores)
        if (score.killed) killed.push_back(score.mutant);
    for (const std::string& word : graded_words()) {
        if (grades.interrupted) break;
        out << fmt::format("\n--precision {}\n", word) << std::flush;
        options.precision = word;
        grades = grade(killed, options, out);
        if (!grades.interrupted) all.push_back({word, std::move(grades.scores)});
    }
    std::error_code ignored;
    std::filesystem::remove(killers, ignored);
    return all;
}

std::string words_table(const std::vector<WordScore>& words) {
    const std::vector<std::string> families = families_of(words.front().scores);
    std::string text = fmt::format("| word | {} | all | mutants that survive |\n|---|{}---:|---|\n",
                                   fmt::join(families, " | "),
                                   fmt::join(std::vector<std::string>(families.size(), "---:|"), ""));
    for (const WordScore& one : words) {
        text += fmt::format("| {} |", one.word.empty() ? "none" : "`" + one.word + "`");
        for (const std::string& family : families)
            text += fmt::format(" {} |", share_of(one.scores, family));
        text += fmt::format(" {} | {} |\n", share_of(one.scores, ""), survivors_of(one.scores));
    }
    return text;
}

void rewrite_words(const std::string& path, const std::vector<WordScore>& words) {
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot read " + path);
    std::ostringstream whole;
    whole << in.rdbuf();
    std::string text = whole.str();
    const std::size_t begin = text.find(kBegin), end = text.find(kEnd);
    if (begin == std::string::npos || end == std::string::npos || end < begin)
        throw std::runtime_error(path + " has no markers <!-- words:begin --> and <!-- words:end -->");
    const std::size_t from = begin + kBegin.size();
    write_file(path, text.replace(from, end - from, words_table(words)));
}

}  // namespace attncheck::properties
