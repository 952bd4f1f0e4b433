# Install rules, the package that find_package(bolide) finds, and `bundle`, which writes
# dist/bolide-VERSION-linux-ARCH.tar.zst: programs that run on any Linux of this processor with glibc 2.36 or newer.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Called last, when every target exists.
function(bolide_install)
  if(TARGET bolide)
    install(TARGETS bolide RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
  install(FILES LICENSE NOTICE THIRD_PARTY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

  # The library: the public headers, and one static library per folder behind the one name bolide::bolide.
  if(TARGET bolide_api)
    get_property(folders GLOBAL PROPERTY BOLIDE_FOLDERS)
    set(libraries bolide_flags bolide_version)
    foreach(folder ${folders})
      if(NOT folder MATCHES "^(cli|server)$")
        list(APPEND libraries bolide_${folder})
        set_target_properties(bolide_${folder} PROPERTIES EXPORT_NAME ${folder})
      endif()
    endforeach()
    set_target_properties(bolide_flags PROPERTIES EXPORT_NAME flags)
    set_target_properties(bolide_version PROPERTIES EXPORT_NAME version)
    set_target_properties(bolide_api PROPERTIES EXPORT_NAME bolide)
    install(TARGETS ${libraries} EXPORT bolide ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/bolide")
    install(DIRECTORY include/bolide DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
    set(package "${CMAKE_INSTALL_LIBDIR}/cmake/bolide")
    install(EXPORT bolide NAMESPACE bolide:: DESTINATION "${package}" FILE bolideTargets.cmake)
    write_basic_package_version_file("${PROJECT_BINARY_DIR}/bolideConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
    install(FILES cmake/bolideConfig.cmake "${PROJECT_BINARY_DIR}/bolideConfigVersion.cmake" DESTINATION "${package}")
  endif()

  set(programs bolide)
  if(TARGET bolide_gpu_tests)
    list(APPEND programs bolide_gpu_tests)
  endif()
  set(files ${programs})
  list(TRANSFORM files REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  set(bundle "${PROJECT_SOURCE_DIR}/dist/bolide-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}.tar.zst")
  add_custom_target(bundle COMMAND "${PROJECT_SOURCE_DIR}/tools/bundle.sh" "${bundle}" ${files}
    DEPENDS ${programs} COMMENT "Writing ${bundle}" USES_TERMINAL VERBATIM)
endfunction()

# The program finds the libraries that the bundle has in lib/ beside its bin/, and they find each other there: RPATH, not
# RUNPATH, which holds for a program's own needs alone.
function(bolide_relocatable program)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endfunction()
