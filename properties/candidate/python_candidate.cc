#include "properties/candidate/python_candidate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "properties/candidate/installation.h"

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

std::string from_environment(const char* variable) {
    const char* const text = std::getenv(variable);
    return text ? text : "";
}

bool is_program(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

/// A name without a slash is looked for on PATH, as a shell does.
std::string program_named(const std::string& name) {
    if (name.find('/') != std::string::npos) {
        if (is_program(name)) return fs::absolute(name);
    } else {
        std::istringstream folders(from_environment("PATH"));
        for (std::string folder; std::getline(folders, folder, ':');)
            if (const fs::path path = fs::path(folder) / name; is_program(path)) return path;
    }
    throw LoadError(fmt::format("--python: no program {}, expected a Python interpreter", name));
}

std::string chosen_interpreter(const std::string& interpreter) {
    if (!interpreter.empty()) return program_named(interpreter);
    const std::string set = from_environment("ATTNCHECK_PYTHON");
    return program_named(set.empty() ? "python3" : set);
}

bool is_module_name(const std::string& text) {
    return !text.empty() && !text.starts_with('.') && !text.ends_with('.') &&
           std::ranges::all_of(text, [](unsigned char c) {
               return std::isalnum(c) || c == '_' || c == '.' || c >= 0x80;
           });
}

}  // namespace

void choose_python(const std::string& text, const std::string& interpreter,
                   const std::string& entry_table, WorkerOptions& options) {
    std::error_code error;
    std::string module = text, name;
    if (const auto colon = text.rfind(':'); colon != std::string::npos && !fs::exists(text, error)) {
        module = text.substr(0, colon);
        name = text.substr(colon + 1);
        if (name.empty())
            throw LoadError(fmt::format("--candidate python:{}: no function is named behind the colon", text));
    }
    if (module.ends_with(".py") || module.find('/') != std::string::npos) {
        if (!fs::is_regular_file(module, error))
            throw LoadError(fmt::format("cannot load python:{}: no file {}", text, module));
        module = fs::absolute(module);
    } else if (!is_module_name(module)) {
        throw LoadError(fmt::format(
            "cannot load python:{}: '{}' is neither a file that ends in .py nor the name of a module",
            text, module));
    }
    options.library = module;
    options.worker = chosen_interpreter(interpreter);
    options.can_fork = true;
    options.worker_arguments = {find_python_worker(), find_worker_library(), entry_table, name};
}

}  // namespace attncheck::properties
