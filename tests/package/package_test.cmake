# Installs to a fresh prefix, moves it (an installation must not remember where it was made), builds the consumer against
# it and runs the program it finds there.
cmake_minimum_required(VERSION 3.25)

# expect(STATUS TEXT COMMAND...): runs the command, which must exit with STATUS and print TEXT.
function(expect status text)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${work} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  list(JOIN ARGN " " command)
  if(NOT result STREQUAL status)
    message(FATAL_ERROR "${command}\nexit status ${result}, expected ${status}\n${output}")
  endif()
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${command}\ndoes not print '${text}'\n${output}")
  endif()
endfunction()

foreach(variable DESTDIR ATTNCHECK_WORKER ATTNCHECK_BUILTIN ATTNCHECK_ACLNN_ADAPTER ATTNCHECK_ACL)
  unset(ENV{${variable}})
endforeach()
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})
set(prefix "${work}/moved prefix")

expect(0 "attncheck-config.cmake" ${CMAKE_COMMAND} --install ${attncheck_build} --prefix ${work}/prefix)
file(RENAME ${work}/prefix ${prefix})

expect(0 "" ${CMAKE_COMMAND} -S ${consumer} -B ${work}/consumer -G ${generator} -D CMAKE_BUILD_TYPE=${config}
  -D CMAKE_C_COMPILER=${c_compiler} -D CMAKE_CXX_COMPILER=${cxx_compiler} -D CMAKE_PREFIX_PATH=${prefix})
expect(0 "" ${CMAKE_COMMAND} --build ${work}/consumer)
# The consumer's own target runs attncheck::command.
expect(0 "nsa_compress  (implemented)" ${CMAKE_COMMAND} --build ${work}/consumer --target list_candidate)

set(command ${prefix}/bin/attncheck)
foreach(language c cxx)
  set(candidate ${work}/consumer/libdeclining_${language}.so)
  expect(0 "declining ${language} kernel" ${command} list --candidate ${candidate})
  expect(0 "nsa_compress_grad  (not implemented)" ${command} list --candidate ${candidate})
  expect(3 "declining ${language} kernel" ${command} verify --candidate ${candidate} --cases 5 --no-validation)
endforeach()

# Without --candidate the program finds the built-in library, and its worker, in the prefix.
expect(0 "held" ${command} reproduce
  "nsa_compress{dtype=bf16 seq=[0,16,32] heads=1 dim=16 block=16 stride=16 data=normal seed=1}")
# So does `aclnn:`, where our own library of the vendor's interface is built.
set(acl_files)
if(EXISTS ${prefix}/${libdir}/libattncheck_acl.so)
  expect(0 "nsa_compress  (implemented)" ${command} list --candidate aclnn:)
  set(acl_files include/attncheck-acl/acl/acl.h include/attncheck-acl/aclnn/acl_meta.h
    include/attncheck-acl/aclnnop/aclnn_nsa_compress.h)
endif()
foreach(file libexec/attncheck/attncheck-worker ${libdir}/libattncheck_builtin.so ${libdir}/libattncheck_aclnn_adapter.so
             ${acl_files} share/attncheck/waivers/cann.txt share/attncheck/schema/report.json)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
