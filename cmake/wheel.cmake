# A wheel (pyproject.toml) runs on machines that have neither the libraries it was built with nor a compiler: shared ones
# travel with it, found relative to who needs them, and the C++ runtime is linked in.
if(NOT SKBUILD)
  return()
endif()
find_package(fmt REQUIRED)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN")
add_link_options(-static-libstdc++ -static-libgcc)
install(IMPORTED_RUNTIME_ARTIFACTS fmt::fmt LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
