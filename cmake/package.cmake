# What a kernel's project gets from find_package(attncheck): attncheck::candidate, the include directory of the public
# header, attncheck::acl, the vendor's C interface on a plain CPU, and attncheck::command, the installed program. The rooms
# install their own programs and libraries.
if(ATTNCHECK_FUZZ)
  return()  # a fuzzing build has no program to install
endif()
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attncheck)
install(FILES ${PROJECT_SOURCE_DIR}/include/attncheck/candidate.h ${PROJECT_SOURCE_DIR}/include/attncheck/nsa_module.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attncheck)
if(NOT ATTNCHECK_CANN)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/acl ${PROJECT_SOURCE_DIR}/include/aclnn ${PROJECT_SOURCE_DIR}/include/aclnnop
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attncheck-acl)
endif()
install(TARGETS attncheck_candidate EXPORT attncheck)
install(EXPORT attncheck NAMESPACE attncheck:: FILE attncheck-targets.cmake DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/attncheck-config.cmake.in
  ${PROJECT_BINARY_DIR}/attncheck-config.cmake INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attncheck-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attncheck-config.cmake ${PROJECT_BINARY_DIR}/attncheck-config-version.cmake
  DESTINATION ${package_dir})
