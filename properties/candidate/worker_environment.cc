// What of the environment comes into the sandbox: settings of loaders, interpreters, thread pools
// and devices. Words and keys of whoever runs the suite do not.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "properties/candidate/sandbox.h"

namespace attncheck::properties {
namespace {

constexpr std::string_view kNames[] = {
    "PATH",       "HOME",         "USER",   "LOGNAME", "SHELL",           "LANG",
    "LANGUAGE",   "TZ",           "TERM",   "CC",      "CXX",             "CPATH",
    "LIBRARY_PATH", "VIRTUAL_ENV", "MALLOC_ARENA_MAX"};

/// A family that one program or library defines.
constexpr std::string_view kBeginnings[] = {
    "ATTNCHECK_", "LC_",     "LD_",     "PYTHON",   "CONDA_",  "OMP_",    "GOMP_",  "KMP_",
    "MKL_",       "DNNL_",   "ONEDNN_", "OPENBLAS_", "GOTO_",  "BLIS_",   "NUMEXPR_", "NUMBA_",
    "TORCH_",     "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "XLA_", "JAX_", "TF_",   "CUDA_",
    "CUBLAS_",    "CUDNN_",  "NVIDIA_", "HIP_",     "HSA_",    "ROCM_",   "ROCR_",  "GPU_",
    "SYCL_",      "ONEAPI_", "ASCEND_", "ACL_",     "ASAN_",   "LSAN_",   "UBSAN_", "TSAN_",
    "MSAN_",      "GLIBC_",  "HWY_"};

/// Secrets that bear such a beginning.
constexpr std::string_view kSecrets[] = {"TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "_KEY"};

/// Where programs put what they keep: variable, and folder within the private one.
constexpr std::string_view kFolders[][2] = {{"TMPDIR", ""},
                                            {"TMP", ""},
                                            {"TEMP", ""},
                                            {"XDG_CACHE_HOME", "/cache"},
                                            {"XDG_RUNTIME_DIR", ""},
                                            {"TRITON_CACHE_DIR", "/triton"},
                                            {"TORCHINDUCTOR_CACHE_DIR", "/inductor"},
                                            {"TORCH_EXTENSIONS_DIR", "/torch_extensions"},
                                            {"CUDA_CACHE_PATH", "/cuda"},
                                            {"NUMBA_CACHE_DIR", "/numba"},
                                            {"MPLCONFIGDIR", "/matplotlib"},
                                            {"ASCEND_WORK_PATH", "/ascend"},
                                            {"ASCEND_CACHE_PATH", "/ascend"}};

/// PyTorch's pool of compiling processes needs semaphores that outlive it.
constexpr std::string_view kOneCompiler = "TORCHINDUCTOR_COMPILE_THREADS=1";

bool is_set_here(std::string_view name) {
    return std::ranges::any_of(kFolders, [&](const auto& one) { return one[0] == name; }) ||
           kOneCompiler.starts_with(std::string(name) + '=');
}

bool comes_in(std::string_view name) {
    if (std::ranges::find(kNames, name) != std::end(kNames)) return true;
    return std::ranges::any_of(kBeginnings, [&](auto one) { return name.starts_with(one); }) &&
           std::ranges::none_of(kSecrets, [&](auto one) { return name.find(one) != name.npos; });
}

}  // namespace

std::vector<std::string> sandboxed_environment(const char* const* own,
                                               const std::vector<std::string>& more,
                                               const std::string& folder) {
    std::vector<std::string> out;
    for (; *own != nullptr; ++own) {
        const std::string_view variable = *own, name = variable.substr(0, variable.find('='));
        const bool is_asked_for = std::ranges::find(more, name) != more.end();
        if (is_asked_for || (comes_in(name) && !is_set_here(name))) out.emplace_back(variable);
    }
    const auto is_left = [&](std::string_view name) { return std::ranges::find(more, name) == more.end(); };
    for (const auto& [name, place] : kFolders)
        if (is_left(name)) out.push_back(std::string(name) + '=' + folder + std::string(place));
    out.emplace_back(kOneCompiler);
    return out;
}

std::vector<std::string> withheld_variables_named_in(std::string_view file, const char* const* own,
                                                     const std::vector<std::string>& more) {
    const auto is_string = [&](std::string_view name) {
        constexpr std::string_view kEnds("\0\"'", 3);
        for (std::size_t at = file.find(name); at != file.npos; at = file.find(name, at + 1))
            if (at > 0 && at + name.size() < file.size() && kEnds.find(file[at - 1]) != kEnds.npos &&
                file[at - 1] == file[at + name.size()])
                return true;
        return false;
    };
    constexpr std::size_t kLeast = 2;  // every library has strings of one letter, and shells set "_"
    std::vector<std::string> out;
    for (; *own != nullptr; ++own) {
        const std::string_view variable = *own, name = variable.substr(0, variable.find('='));
        if (name.size() < kLeast || comes_in(name) || is_set_here(name) || std::ranges::find(more, name) != more.end()) continue;
        if (is_string(name)) out.emplace_back(name);
    }
    return out;
}

}  // namespace attncheck::properties
