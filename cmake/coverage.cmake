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

# gcov writes its counters at exit(), but candidates' workers and the processes of --jobs end by
# _exit. In programs, _exit writes them first: the program's own and those of every library in it
# that has this file too.
function(attncheck_dump_counters target)
  if(ATTNCHECK_COVERAGE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/coverage_dump.c)
    target_link_options(${target} PRIVATE --coverage LINKER:--wrap=_exit)
    target_compile_definitions(${target} PRIVATE ATTNCHECK_COVERAGE)
  endif()
endfunction()
