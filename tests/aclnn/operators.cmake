# Operators of the vendor's interface: the documents' example as it stands, examples of every other variant, and tests.
# The examples see the public headers and libattncheck_acl, nothing else; warnings are the vendor's business.
set(aclnn_seed_document ${CMAKE_CURRENT_SOURCE_DIR}/seed/001_cd57c607ea930623.txt)
set(aclnn_seed_example ${CMAKE_CURRENT_BINARY_DIR}/seed/nsa_compress_grad.cpp)
set(aclnn_extract ${CMAKE_CURRENT_SOURCE_DIR}/seed/extract_example.cmake)
add_custom_command(OUTPUT ${aclnn_seed_example}
  COMMAND ${CMAKE_COMMAND} -D document=${aclnn_seed_document} -D example=${aclnn_seed_example} -P ${aclnn_extract}
  DEPENDS ${aclnn_seed_document} ${aclnn_extract} VERBATIM)
add_custom_target(aclnn_seed_example_source DEPENDS ${aclnn_seed_example})

set(aclnn_examples_folder ${PROJECT_BINARY_DIR}/bin/aclnn_examples)
set(aclnn_examples)
function(add_aclnn_example source standard)
  cmake_path(GET source STEM name)
  set(target aclnn_example_${name}_cxx${standard})
  add_executable(${target} ${source})
  set_target_properties(${target} PROPERTIES CXX_STANDARD ${standard} CXX_EXTENSIONS OFF
    OUTPUT_NAME ${name}_cxx${standard} RUNTIME_OUTPUT_DIRECTORY ${aclnn_examples_folder})
  target_compile_options(${target} PRIVATE -w -Wno-error $<$<CONFIG:Release>:-O0>)
  target_link_libraries(${target} PRIVATE attncheck::acl)
  set(aclnn_examples ${aclnn_examples} ${target} PARENT_SCOPE)
endfunction()

# C++11 is what the vendor's build script asks for; C++17 in addition.
foreach(standard IN ITEMS 11 17)
  add_aclnn_example(${aclnn_seed_example} ${standard})
  add_dependencies(aclnn_example_nsa_compress_grad_cxx${standard} aclnn_seed_example_source)
  foreach(name IN ITEMS
      flash_attention_score flash_attention_score_v2
      flash_attention_varlen_score flash_attention_varlen_score_v2
      flash_attention_varlen_score_v3 flash_attention_varlen_score_v4
      flash_attention_score_grad flash_attention_score_grad_v2
      flash_attention_unpadding_score_grad flash_attention_unpadding_score_grad_v2
      flash_attention_unpadding_score_grad_v3 flash_attention_unpadding_score_grad_v4
      nsa_compress nsa_compress_attention nsa_selected_attention nsa_selected_attention_grad)
    add_aclnn_example(examples/${name}.cpp ${standard})
  endforeach()
endforeach()

add_executable(aclnn_examples_test operators_examples_test.cc)
attncheck_test_program(aclnn_examples_test UNOPTIMISED)
target_compile_definitions(aclnn_examples_test PRIVATE ACLNN_EXAMPLES="${aclnn_examples_folder}")
target_link_libraries(aclnn_examples_test PRIVATE GTest::gtest_main)
add_dependencies(aclnn_examples_test ${aclnn_examples})
gtest_discover_tests(aclnn_examples_test PROPERTIES LABELS acceptance TIMEOUT 300)

# The library's objects, so that the candidate interface is there for comparison.
add_library(aclnn_operators_problems OBJECT operators_fields.cc operators_problem.cc)
target_compile_options(aclnn_operators_problems PRIVATE $<$<CONFIG:Release>:-O1>)
target_link_libraries(aclnn_operators_problems PUBLIC attncheck_candidate)
target_include_directories(aclnn_operators_problems PUBLIC ${PROJECT_SOURCE_DIR})
foreach(test IN ITEMS operators_arguments_test operators_chain_test operators_rejections_test operators_results_test)
  add_executable(aclnn_${test} ${test}.cc)
  attncheck_test_program(aclnn_${test})
  target_link_libraries(aclnn_${test} PRIVATE
    attncheck_acl_objects aclnn_operators_problems GTest::gtest GTest::gtest_main)
  gtest_discover_tests(aclnn_${test} TEST_PREFIX acl. PROPERTIES LABELS unit TIMEOUT 120)
endforeach()
# This one records what reaches the entry points instead of calling them.
foreach(operator IN ITEMS nsa_compress nsa_compress_grad nsa_selected_attention nsa_selected_attention_grad
    nsa_compress_attention flash_attention_score flash_attention_score_grad)
  target_link_options(aclnn_operators_arguments_test PRIVATE LINKER:--wrap=attncheck_${operator})
endforeach()

add_library(aclnn_operators_signatures OBJECT operators_signatures.cc)
target_link_libraries(aclnn_operators_signatures PRIVATE attncheck_candidate)
set_target_properties(aclnn_operators_signatures PROPERTIES CXX_STANDARD 11 CXX_EXTENSIONS OFF)
