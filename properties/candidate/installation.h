// Paths of the programs and libraries that belong together. Each is looked for beside the running
// program and where `cmake --install` puts it; the environment variable named first wins.
#pragma once

#include <string>

namespace attncheck::properties {

/// Each throws LoadError when there is none.
std::string find_worker();           ///< ATTNCHECK_WORKER: attncheck-worker
std::string find_builtin_library();  ///< ATTNCHECK_BUILTIN
std::string find_aclnn_adapter();    ///< ATTNCHECK_ACLNN_ADAPTER: to the vendor's two-phase functions
std::string find_acl_library();      ///< ATTNCHECK_ACL: the project's library of those
std::string find_worker_library();   ///< ATTNCHECK_WORKER_LIBRARY: the worker, worker_library.h
std::string find_python_worker();    ///< ATTNCHECK_PYTHON_WORKER: the user of it in Python

/// ATTNCHECK_MUTANTS: the library of mutants, which is not installed.
std::string find_mutants_library();

}  // namespace attncheck::properties
