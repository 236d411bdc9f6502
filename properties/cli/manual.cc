#include "properties/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "properties/cli/help.h"
#include "properties/cli/names.h"
#include "properties/cli/option_checks.h"
#include "properties/report/exit_status.h"

namespace attncheck::properties {
namespace {

/// A text in roff: no word of it is a request.
std::string roff(const std::string& text) {
    std::string out;
    for (const char ch : text) {
        if (ch == '\\')
            out += "\\e";
        else if (ch == '-')
            out += "\\-";
        else if (ch == '\n')
            out += ' ';
        else
            out += ch;
    }
    return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

/// "--op" and "-v, --verbose".
std::vector<std::string> names_of(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    return names;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// "FILE" or "{a,b}"; empty for flags.
std::string value_of(const CLI::Option& option) {
    if (!takes_value(option)) return {};
    const std::string type = option.get_type_name();
    const std::size_t choices = type.find('{');
    return choices == std::string::npos ? type : type.substr(choices);
}

/// What an option allows, where that is a list.
std::vector<std::string> choices_of(const CLI::Option& option, const std::string& command) {
    for (const std::string& name : names_of(option)) {
        if (name == "--op" || name == "--require") return operator_names();
        if (name == "--property") return property_names();
    }
    if (option.get_positional() && command == "explain") return property_names();
    if (option.get_positional() && command == "cases") return operator_names();
    std::string text = value_of(option);
    if (!text.starts_with('{')) return {};
    text = text.substr(1, text.find('}') - 1);
    std::vector<std::string> out;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) out.push_back(word);
    return out;
}

std::string man_option(const CLI::Option& option) {
    const std::vector<std::string> names = names_of(option);
    std::string head;
    for (const std::string& name : names) head += (head.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
    if (names.empty()) head = "\\fI" + roff(option.get_name()) + "\\fR";
    if (const std::string value = value_of(option); !value.empty() && !names.empty())
        head += " \\fI" + roff(value) + "\\fR";
    std::string text = roff(option.get_description());
    if (takes_value(option) && !option.get_default_str().empty())
        text += roff(fmt::format(" [{}]", option.get_default_str()));
    return fmt::format(".TP\n{}\n{}\n", head, text);
}

bool is_help(const CLI::Option& option) {
    return std::ranges::find(option.get_lnames(), "help") != option.get_lnames().end();
}

std::string words(const std::vector<std::string>& list) { return fmt::format("{}", fmt::join(list, " ")); }

struct Command {
    std::string name, description;
    std::vector<std::string> options;                                       ///< "--op"
    std::vector<std::pair<std::string, std::vector<std::string>>> choices;  ///< by option
    std::vector<std::string> taking;                                        ///< options with a value
    std::vector<std::string> positional;                                    ///< its choices
};

std::vector<Command> commands_of(const CLI::App& app) {
    std::vector<Command> out;
    for (const CLI::App* sub : app.get_subcommands({})) {
        Command command{sub->get_name(), sub->get_description(), {}, {}, {}, {}};
        for (const CLI::Option* option : sub->get_options()) {
            const std::vector<std::string> choices = choices_of(*option, command.name);
            const std::vector<std::string> names = names_of(*option);
            if (names.empty()) {
                command.positional = choices;
                continue;
            }
            for (const std::string& name : names) {
                command.options.push_back(name);
                if (takes_value(*option)) command.taking.push_back(name);
                if (!choices.empty()) command.choices.emplace_back(name, choices);
            }
        }
        out.push_back(std::move(command));
    }
    return out;
}

std::string bash_completion(const std::vector<Command>& commands) {
    std::string names, cases;
    for (const Command& command : commands) {
        names += (names.empty() ? "" : " ") + command.name;
        cases += fmt::format("        {})\n            case $last in\n", command.name);
        for (const auto& [option, choices] : command.choices)
            cases += fmt::format("                {}) choices=\"{}\" ;;\n", option, words(choices));
        std::vector<std::string> files;
        for (const std::string& option : command.taking)
            if (std::ranges::find(command.choices, option, &decltype(command.choices)::value_type::first) ==
                command.choices.end())
                files.push_back(option);
        if (!files.empty()) cases += fmt::format("                {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
                                                 fmt::join(files, "|"));
        cases += fmt::format("                *) choices=\"{}\" ;;\n            esac ;;\n",
                             words(command.options) + (command.positional.empty() ? "" : " " + words(command.positional)));
    }
    return fmt::format(
        "# Completion of attncheck for bash; made by `attncheck completion bash`.\n"
        "_attncheck() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} choices\n"
        "    COMPREPLY=()\n"
        "    if ((COMP_CWORD == 1)); then\n"
        "        COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case ${{COMP_WORDS[1]}} in\n{}    esac\n"
        "    COMPREPLY=($(compgen -W \"$choices\" -- \"$word\"))\n"
        "    [[ ${{#COMPREPLY[@]}} -eq 0 && $word != -* ]] && COMPREPLY=($(compgen -f -- \"$word\"))\n"
        "    return 0\n"
        "}}\n"
        "complete -o filenames -F _attncheck attncheck ./attncheck\n",
        names, cases);
}

/// Zsh runs the functions of bash.
std::string zsh_completion(const std::vector<Command>& commands) {
    std::string text = bash_completion(commands);
    text = text.substr(text.find('\n') + 1);
    return "#compdef attncheck\n# Completion of attncheck for zsh; made by `attncheck completion zsh`.\n"
           "autoload -Uz bashcompinit && bashcompinit\n" + text;
}

std::string fish_quoted(const std::string& text) {
    std::string out;
    for (const char ch : text) out += ch == '\'' || ch == '\\' ? std::string("\\") + ch : std::string(1, ch);
    return "'" + out + "'";
}

std::string fish_completion(const CLI::App& app, const std::vector<Command>& commands) {
    std::string out = "# Completion of attncheck for fish; made by `attncheck completion fish`.\n";
    for (const Command& command : commands)
        out += fmt::format("complete -c attncheck -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                           fish_quoted(command.description));
    for (const CLI::App* sub : app.get_subcommands({}))
        for (const CLI::Option* option : sub->get_options()) {
            const std::string at = fmt::format("complete -c attncheck -n '__fish_seen_subcommand_from {}'", sub->get_name());
            const std::vector<std::string> choices = choices_of(*option, sub->get_name());
            for (const std::string& name : option->get_lnames())
                out += fmt::format("{} -l {}{}{} -d {}\n", at, name, takes_value(*option) ? " -r" : "",
                                   choices.empty() ? "" : " -f -a " + fish_quoted(words(choices)),
                                   fish_quoted(option->get_description()));
            if (option->get_positional() && !choices.empty())
                out += fmt::format("{} -f -a {}\n", at, fish_quoted(words(choices)));
        }
    return out;
}

/// "CASE [option]..." in roff's alternating fonts: what is no option comes first.
std::string synopsis_of(const CLI::App& command) {
    for (const CLI::Option* option : command.get_options())
        if (option->get_positional() && names_of(*option).empty())
            return fmt::format(fmt::runtime(option->get_required() ? "\"\" {} \" [\" option ]..."
                                                                   : "[ {} \"] [\" option ]..."),
                               roff(option->get_name()));
    return "[ option ]...";
}

}  // namespace

std::string manual_page(const CLI::App& app, const std::string& version) {
    std::string out = fmt::format(
        ".TH ATTNCHECK 1 \"\" \"attncheck {}\" \"User Commands\"\n.SH NAME\nattncheck \\- property\\-based verification "
        "of attention kernels\n.SH SYNOPSIS\n",
        version);
    const auto subs = app.get_subcommands({});
    for (const CLI::App* sub : subs)
        out += fmt::format(".B attncheck {}\n.RI {}\n.br\n", roff(sub->get_name()), synopsis_of(*sub));
    out += ".SH DESCRIPTION\n" + roff(app.get_description()) + "\n";
    for (const CLI::App* sub : subs) {
        out += fmt::format(".SH \"{}\"\n{}.\n", roff(sub->get_name()), roff(sub->get_description()));
        for (const CLI::Option* option : sub->get_options())
            if (!is_help(*option)) out += man_option(*option);
    }
    out += ".SH \"EXIT STATUS\"\n";
    for (const ExitMeaning& one : kExitMeanings)
        out += fmt::format(".TP\n{}\n{}\n", one.status, roff(one.meaning));
    out += ".SH EXAMPLES\n.nf\n";
    for (const CLI::App* sub : subs) out += roff(help_example(sub->get_name())) + "\n";
    out += ".fi\n";
    out += ".SH ENVIRONMENT\n.TP\nNO_COLOR\nNo colours on a terminal, whatever the value, unless it is empty.\n"
           ".TP\nXDG_CACHE_HOME\nThe folder of attncheck/last.json, the report of the last run that found something "
           "[~/.cache].\n";
    return out;
}

std::string completion(const CLI::App& app, const std::string& shell) {
    const std::vector<Command> commands = commands_of(app);
    return shell == "bash"  ? bash_completion(commands)
           : shell == "zsh" ? zsh_completion(commands)
                            : fish_completion(app, commands);
}

void add_manual_commands(CLI::App& app, ManualCommands& commands) {
    commands.manual = app.add_subcommand("manual", "the manual page, for man -l -");
    commands.completion = app.add_subcommand("completion", "what a shell needs to complete commands and options");
    commands.completion->add_option("shell", commands.shell, "the shell")
        ->required()
        ->check(one_of({"bash", "zsh", "fish"}));
}

}  // namespace attncheck::properties
