# Counting executed lines and branches (ATTNCHECK_COVERAGE, preset `coverage`). Only impl/ and ref/
# are counted: they are what the suite is to reach.
if(ATTNCHECK_COVERAGE AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "ATTNCHECK_COVERAGE needs gcc; use the preset 'coverage'")
endif()

# Threads of one process share the counters: without atomic updates some would be lost.
function(attncheck_measure target)
  if(ATTNCHECK_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage -fprofile-update=atomic)
    target_link_options(${target} PUBLIC --coverage)
  endif()
endfunction()

# Candidates' workers and the processes of --jobs end by _exit, which would lose their counters.
function(attncheck_keep_counters program)
  if(ATTNCHECK_COVERAGE)
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/coverage_exit.c)
    target_link_options(${program} PRIVATE LINKER:--wrap=_exit)
  endif()
endfunction()
