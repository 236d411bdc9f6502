// Writes the texts of the laws as a C++ source: what stands above a law in the sources of
// properties/ is what `attncheck explain` prints, so that there is one text.
//
//   law_text OUT.cc FILE...
//
// A text is a block of /// lines with a line "/// Why". Its law is the word in quotes on the line
// below, as in {"agreement", or the function that is declared there.
#include <fstream>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

namespace {

struct LawText {
    std::string path, name, text;
};

std::string trimmed(const std::string& line) {
    const auto first = line.find_first_not_of(' ');
    return first == std::string::npos ? "" : line.substr(first);
}

/// The name that the lines from `at` on declare; empty: none.
std::string name_at(const std::vector<std::string>& lines, std::size_t at) {
    static const std::regex word(R"re("([a-z_]+)")re"), function(R"re((\w+)\s*\()re");
    std::smatch found;
    if (at < lines.size() && std::regex_search(lines[at], found, word)) return found[1];
    for (std::size_t k = at; k < lines.size() && k < at + 3; ++k)
        if (std::regex_search(lines[k], found, function)) {
            const std::string name = found[1];
            return name.rfind("check_", 0) == 0 ? name.substr(6) : name;
        }
    return {};
}

std::vector<LawText> texts_of(const std::string& path) {
    std::ifstream in(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::vector<LawText> out;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string text;
        bool has_reason = false;
        for (; i < lines.size() && trimmed(lines[i]).rfind("///", 0) == 0; ++i) {
            const std::string words = trimmed(lines[i]).substr(3);
            text += (words.rfind(' ', 0) == 0 ? words.substr(1) : words) + "\n";
            has_reason = has_reason || words.rfind(" Why ", 0) == 0;
        }
        if (!has_reason) continue;
        if (const std::string name = name_at(lines, i); !name.empty()) out.push_back({path, name, text});
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: law_text OUT.cc FILE...\n";
        return 2;
    }
    std::ofstream out(argv[1]);
    out << "#include \"properties/cli/law_text.h\"\n\nnamespace attncheck::properties {\n\n"
           "const std::vector<LawText>& law_texts() {\n    static const std::vector<LawText> texts = {\n";
    for (int k = 2; k < argc; ++k)
        for (const LawText& one : texts_of(argv[k]))
            out << "        {\"" << one.path << "\", \"" << one.name << "\", R\"law(" << one.text << ")law\"},\n";
    out << "    };\n    return texts;\n}\n\n}  // namespace attncheck::properties\n";
    return out.good() ? 0 : 1;
}
