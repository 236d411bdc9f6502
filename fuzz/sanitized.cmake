# Replays under the address and undefined-behaviour sanitizers wherever the compiler has them, so that
# an ordinary ctest sees what a debug build would: the validators, the oracle's constraints and the
# runtime of the two-phase interface are compiled a second time, instrumented; kernels are not.
# tests/sanitized has the unit tests of the same sources.
include(CheckCXXSourceCompiles)
set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
set(CMAKE_REQUIRED_FLAGS "-fsanitize=address,undefined")
check_cxx_source_compiles("int main() { return 0; }" ATTNCHECK_HAS_SANITIZERS)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT ATTNCHECK_HAS_SANITIZERS)
  return()
endif()

file(GLOB instrumented_sources
  ${PROJECT_SOURCE_DIR}/impl/operators/*/validate.cc ${PROJECT_SOURCE_DIR}/ref/constraints/*.cc
  ${PROJECT_SOURCE_DIR}/impl/aclnn/*.cc)
list(APPEND instrumented_sources
  ${PROJECT_SOURCE_DIR}/impl/arguments/argument_checks.cc ${PROJECT_SOURCE_DIR}/impl/operators/flash_attention/optional_tensors.cc
  ${PROJECT_SOURCE_DIR}/impl/operators/flash_attention/shapes.cc ${PROJECT_SOURCE_DIR}/impl/operators/flash_attention/sparse_rules.cc
  ${PROJECT_SOURCE_DIR}/impl/aclnn/operators/call_snapshot.cc
  ${PROJECT_SOURCE_DIR}/impl/aclnn/operators/first_phase.cc
  ${PROJECT_SOURCE_DIR}/impl/aclnn/operators/nsa_compress.cc ${PROJECT_SOURCE_DIR}/impl/aclnn/operators/staging.cc)
add_library(attncheck_sanitized OBJECT ${instrumented_sources})
target_include_directories(attncheck_sanitized PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(attncheck_sanitized PRIVATE -O1 INTERFACE -O0 PUBLIC ${sanitizers})
target_link_options(attncheck_sanitized PUBLIC ${sanitizers})
attncheck_precompile(attncheck_sanitized)
attncheck_in_units(attncheck_sanitized impl_aclnn)

add_library(fuzz_sanitized OBJECT aclnn_program.cc ${call_sources} call_hooks.cc plain_main.cc plain_mutate.cc)
target_link_libraries(fuzz_sanitized PUBLIC attncheck_sanitized)
attncheck_precompile(fuzz_sanitized)

# The kernels come from the archive, which gives only what the objects do not have. The descriptions are not compiled a
# second time.
function(attncheck_add_sanitized_replay question changes)
  attncheck_define_fuzz_target(own_target ${question}_sanitized ".family = \"\", .changes = ${changes}")
  add_executable(${question}_sanitized ${question}_fuzz.cc ${own_target})
  target_link_libraries(${question}_sanitized PRIVATE fuzz_sanitized attncheck_sanitized attncheck_properties attncheck_ref attncheck_impl)
  foreach(operator IN LISTS ARGN)
    attncheck_name_fuzz_target(name family ${operator} ${question})
    set(plain ${CMAKE_CURRENT_BINARY_DIR}/plain/${name}_sanitized)
    file(MAKE_DIRECTORY ${plain})
    add_test(NAME fuzz.sanitized.${name}
      COMMAND ${question}_sanitized -operator=${family} -runs=300 ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name} WORKING_DIRECTORY ${plain})
    set_tests_properties(fuzz.sanitized.${name} PROPERTIES LABELS fuzz COST 5 TIMEOUT 120)
  endforeach()
endfunction()
attncheck_add_sanitized_replay(validation 6 ${fuzz_operators})
attncheck_add_sanitized_replay(aclnn_sequence 48 none)
