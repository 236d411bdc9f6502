# ATTNCHECK_CANN: the root of a CANN toolkit. The adapter behind `--candidate aclnn:` is then compiled against its
# headers, and `aclnn:` alone means its libraries; our own library of those names and its headers are left out.
set(cann_of_environment "")
if(DEFINED ENV{ASCEND_HOME_PATH})
  set(cann_of_environment $ENV{ASCEND_HOME_PATH})
endif()
set(ATTNCHECK_CANN "${cann_of_environment}" CACHE PATH "Root of a CANN toolkit; empty: the library of this project")

set(ATTNCHECK_CANN_LIBRARIES "")  # comma-separated, for the program
if(ATTNCHECK_CANN)
  get_filename_component(ATTNCHECK_CANN "${ATTNCHECK_CANN}" ABSOLUTE BASE_DIR ${CMAKE_BINARY_DIR})
  foreach(header acl/acl.h aclnn/acl_meta.h)
    if(NOT EXISTS ${ATTNCHECK_CANN}/include/${header})
      message(FATAL_ERROR "ATTNCHECK_CANN is '${ATTNCHECK_CANN}', which has no include/${header}. Give the root of a CANN "
        "toolkit (ASCEND_HOME_PATH, which its set_env.sh exports), or -DATTNCHECK_CANN= to do without.")
    endif()
  endforeach()
  # Runtime and descriptors, then operators; older toolkits have one operator library, newer ones several.
  foreach(name ascendcl nnopbase opapi opapi_transformer cust_opapi)
    find_library(ATTNCHECK_CANN_${name} ${name} NO_DEFAULT_PATH PATHS ${ATTNCHECK_CANN}/lib64
      ${ATTNCHECK_CANN}/${CMAKE_SYSTEM_PROCESSOR}-linux/lib64)
    mark_as_advanced(ATTNCHECK_CANN_${name})
    if(ATTNCHECK_CANN_${name})
      list(APPEND ATTNCHECK_CANN_LIBRARIES ${ATTNCHECK_CANN_${name}})
    endif()
  endforeach()
  if(NOT ATTNCHECK_CANN_LIBRARIES)  # a build machine: left to the search path when it runs
    set(ATTNCHECK_CANN_LIBRARIES libascendcl.so libnnopbase.so libopapi.so)
  endif()
  list(JOIN ATTNCHECK_CANN_LIBRARIES "," ATTNCHECK_CANN_LIBRARIES)
  message(STATUS "aclnn: means ${ATTNCHECK_CANN_LIBRARIES}")
endif()
