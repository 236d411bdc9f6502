// NsaCompress as our library has it, with one defect that ATTNCHECK_TEST_DEFECT names. Comes before
// our library in the list of libraries, so its functions are found first.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "acl/acl.h"
#include "aclnnop/aclnn_nsa_compress.h"

namespace {

/// Of the call whose first phase came last; the tests run one call at a time.
void* g_input = nullptr;
void* g_output = nullptr;
std::int64_t g_output_elements = 0;
/// A descriptor was destroyed since the last second phase.
bool g_destroyed = false;

bool defect(const char* name) {
    const char* wanted = std::getenv("ATTNCHECK_TEST_DEFECT");
    return wanted && std::string(wanted) == name;
}

/// The function of our library, which is open by the time anything is called.
template <class Function>
Function* next(Function*, const char* name) {
    static void* const library = dlopen(ACL_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Function*>(dlsym(library, name));
}
#define NEXT(function) next(&function, #function)

std::int64_t elements_of(const aclTensor* tensor) {
    std::int64_t* dims = nullptr;
    std::uint64_t count = 0;
    NEXT(aclGetViewShape)(tensor, &dims, &count);
    std::int64_t product = 1;
    for (std::uint64_t d = 0; d < count; ++d) product *= dims[d];
    delete[] dims;
    return product;
}

void poke(void* device, std::uint8_t value) {
    NEXT(aclrtMemcpy)(device, 1, &value, 1, ACL_MEMCPY_HOST_TO_DEVICE);
}

}  // namespace

extern "C" {

aclnnStatus aclnnNsaCompressGetWorkspaceSize(const aclTensor* input, const aclTensor* weight,
                                             const aclIntArray* lengths, char* layout,
                                             int64_t block, int64_t stride, int64_t type,
                                             aclTensor* output, uint64_t* workspace_size,
                                             aclOpExecutor** executor) {
    if (defect("no_kernel")) return 561112;
    if (defect("tiling")) return 561002;
    if (defect("swapped")) std::swap(block, stride);
    if (input) NEXT(aclGetRawTensorAddr)(input, &g_input);
    if (output) {
        NEXT(aclGetRawTensorAddr)(output, &g_output);
        g_output_elements = elements_of(output);
    }
    const aclnnStatus status = NEXT(aclnnNsaCompressGetWorkspaceSize)(input, weight, lengths, layout, block, stride,
                                                                      type, output, workspace_size, executor);
    if (workspace_size && defect("past_workspace")) *workspace_size = std::max<uint64_t>(*workspace_size, 64);
    if (workspace_size && defect("uses_rounding")) *workspace_size = *workspace_size / 32 * 32 + 33;
    return status;
}

aclnnStatus aclnnNsaCompress(void* workspace, uint64_t workspace_size, aclOpExecutor* executor,
                             aclrtStream stream) {
    if (defect("late")) return 561103;
    const aclnnStatus status = NEXT(aclnnNsaCompress)(workspace, workspace_size, executor, stream);
    if (status != 0) return status;
    NEXT(aclrtSynchronizeStream)(stream);
    if (defect("past_output")) poke(static_cast<char*>(g_output) + 2 * g_output_elements, 7);
    g_destroyed = false;
    if (defect("past_workspace")) poke(static_cast<char*>(workspace) + (workspace_size + 31) / 32 * 32 + 32, 7);
    if (defect("uses_rounding")) poke(static_cast<char*>(workspace) + (workspace_size + 31) / 32 * 32 + 31, 7);
    if (defect("writes_input")) poke(g_input, 7);
    return 0;
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
    g_destroyed = true;
    return NEXT(aclDestroyTensor)(tensor);
}

/// Queued work that reads a descriptor fails where that is no more.
aclError aclrtSynchronizeStream(aclrtStream stream) {
    const aclError status = NEXT(aclrtSynchronizeStream)(stream);
    return defect("reads_late") && g_destroyed ? 507015 : status;
}

}  // extern "C"
