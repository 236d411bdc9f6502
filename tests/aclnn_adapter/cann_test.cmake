# Builds the adapter against a toolkit: our own headers and library, laid out and named as the vendor does. Then against
# headers with another order of parameters, and against no toolkit at all.
cmake_minimum_required(VERSION 3.25)

# run(STATUS TEXT COMMAND...): the command must succeed (STATUS 0) or fail (1), and print TEXT.
function(run status text)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${work} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output_line "${output}")
  string(FIND "${output_line}" "${text}" at)
  if((status EQUAL 0 AND NOT result EQUAL 0) OR (status EQUAL 1 AND result EQUAL 0) OR at EQUAL -1)
    message(FATAL_ERROR "${ARGN}\nexit status ${result}, expected ${status} and '${text}'\n${output}")
  endif()
endfunction()

unset(ENV{ASCEND_HOME_PATH})
file(REMOVE_RECURSE ${work})
set(toolkit "${work}/tool kit")
file(MAKE_DIRECTORY ${toolkit}/include ${toolkit}/lib64)
file(COPY ${source}/include/acl ${source}/include/aclnn ${source}/include/aclnnop DESTINATION ${toolkit}/include)
foreach(name ascendcl nnopbase opapi)
  file(CREATE_LINK ${library} ${toolkit}/lib64/lib${name}.so SYMBOLIC)
endforeach()
# As in the vendor's trees: this one is generated elsewhere.
file(REMOVE ${toolkit}/include/aclnnop/aclnn_nsa_compress_grad.h)

set(configure ${CMAKE_COMMAND} -S ${source} -G ${generator} -D CMAKE_BUILD_TYPE=Release
  -D CMAKE_CXX_COMPILER=${cxx_compiler} -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher} -D ATTNCHECK_BUILD_TESTS=OFF
  -D ATTNCHECK_BUILD_BENCH=OFF)
set(build ${CMAKE_COMMAND} --build)

run(1 "which has no include/acl/acl.h" ${configure} -B ${work}/none -D ATTNCHECK_CANN=${work}/nowhere)
run(1 "ASCEND_HOME_PATH" ${configure} -B ${work}/none -D ATTNCHECK_CANN=${work}/nowhere)

# The environment of a toolkit is enough.
set(ENV{ASCEND_HOME_PATH} ${toolkit})
run(0 "does not declare: aclnnNsaCompressGrad" ${configure} -B ${work}/build)
unset(ENV{ASCEND_HOME_PATH})
run(0 "lib64/libascendcl.so" ${configure} -B ${work}/build)
run(0 "" ${build} ${work}/build --target attncheck_aclnn_adapter)
set(ENV{ATTNCHECK_ACLNN_ADAPTER} ${work}/build/lib/libattncheck_aclnn_adapter.so)
set(libraries "aclnn:${toolkit}/lib64/libascendcl.so,${toolkit}/lib64/libnnopbase.so,${toolkit}/lib64/libopapi.so")
run(0 "every property held" ${command} verify --candidate ${libraries} --op nsa_compress_grad --cases 10 --seed 1
  --property agreement)
# Compiled against those headers and no others.
file(READ ${work}/build/properties/aclnn_adapter/declared_operators.h declared)
string(FIND "${declared}" "${toolkit}/include" at)
if(at EQUAL -1)
  message(FATAL_ERROR "checked against other headers than the toolkit's:\n${declared}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E cat ${work}/build/build.ninja OUTPUT_VARIABLE rules)
string(REGEX MATCH "build properties/aclnn_adapter/[^:]*device_call.cc.o:.*build properties/aclnn_adapter/[^:]*nsa_operators"
  rule "${rules}")
if(rule MATCHES "-I${source}/include[ \n]" OR (generator STREQUAL "Ninja" AND NOT rule))
  message(FATAL_ERROR "our headers are on the path beside the toolkit's:\n${rule}")
endif()

# A prototype with two parameters of different types swapped does not compile.
set(header ${toolkit}/include/aclnnop/aclnn_nsa_selected_attention.h)
file(READ ${header} text)
string(REPLACE "double scaleValue, int64_t headNum" "int64_t headNum, double scaleValue" swapped "${text}")
if(swapped STREQUAL text)
  message(FATAL_ERROR "${header} no longer says 'double scaleValue, int64_t headNum'")
endif()
file(WRITE ${header} "${swapped}")
run(1 "aclnnNsaSelectedAttentionGetWorkspaceSize has other parameters"
  ${build} ${work}/build --target attncheck_aclnn_adapter)
