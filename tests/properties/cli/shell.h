// Runs a command line as a person would, and keeps what it printed.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace attncheck::properties {

struct Ran {
    int status = -1;       ///< exit code; 128 + number when a signal ended it
    std::string printed;   ///< whatever the redirections of the line lead to standard output
};

/// A path as one word of a command line, blanks and all.
inline std::string quoted(const std::string& path) { return "'" + path + "'"; }

inline Ran run_line(const std::string& line) {
    Ran ran;
    FILE* pipe = popen(line.c_str(), "r");
    if (!pipe) return ran;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        ran.printed.append(buffer, n);
    const int status = pclose(pipe);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ran;
}

/// The attncheck program with these arguments, standard output and standard error together.
inline Ran attncheck(const std::string& arguments, const std::string& redirection = "2>&1") {
    return run_line(quoted(COMMAND_PATH) + " " + arguments + " " + redirection);
}

inline std::string candidate_path(const std::string& name) {
    return std::string(CANDIDATE_DIR) + "/" + name + ".so";
}

}  // namespace attncheck::properties
