# gRPC, for the folders that are called so: BOLIDE_WITH_GRPC says whether this build has it; bolide_protos makes sources of
# descriptions of messages.
option(BOLIDE_GRPC "KServe's protocol over gRPC in bolide serve (needs libgrpc++-dev, libprotobuf-dev, protobuf-compiler)" ON)

set(BOLIDE_WITH_GRPC OFF)
if(BOLIDE_SANITIZE MATCHES thread)
  # Debian's library is not built for the thread sanitizer, which then sees races where its locks are.
  message(STATUS "gRPC is left out of this build, and its tests: the thread sanitizer does not see the library's locks")
elseif(BOLIDE_GRPC)
  find_program(BOLIDE_PROTOC protoc)
  pkg_check_modules(GRPC grpc++>=1.51 protobuf>=3.21)
  if(NOT BOLIDE_PROTOC OR NOT GRPC_FOUND)
    message(FATAL_ERROR "gRPC is not there: install libgrpc++-dev, libprotobuf-dev and protobuf-compiler, or configure with "
      "-DBOLIDE_GRPC=OFF, without which `bolide serve` has no --grpc-port")
  endif()
  set(BOLIDE_WITH_GRPC ON)
  # The library and Abseil become part of the program where the system has them as archives: as shared libraries they are
  # fifty, which every start of the program would have to find. Those that get security updates stay shared.
  set(archives "")
  set(shared "")
  foreach(name ${GRPC_STATIC_LIBRARIES})
    find_library(BOLIDE_ARCHIVE_${name} lib${name}.a)
    mark_as_advanced(BOLIDE_ARCHIVE_${name})
    if(name MATCHES "^(grpc|grpc\\+\\+|gpr|upb|re2|address_sorting|absl_.*)$" AND BOLIDE_ARCHIVE_${name})
      list(APPEND archives "${BOLIDE_ARCHIVE_${name}}")
    else()
      list(APPEND shared ${name})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES archives)
  list(REMOVE_DUPLICATES shared)
  add_library(bolide_grpc INTERFACE)
  target_include_directories(bolide_grpc SYSTEM INTERFACE ${GRPC_INCLUDE_DIRS})
  target_link_libraries(bolide_grpc INTERFACE -Wl,--start-group ${archives} -Wl,--end-group ${shared})
endif()

# bolide_protos(TARGET FOLDER): the *.proto files of src/FOLDER become sources of TARGET, and headers <pb/NAME.pb.h> for it
# and for what links it. They are compiled without warnings and with little optimisation: they are long.
function(bolide_protos target folder)
  if(NOT BOLIDE_WITH_GRPC)
    return()
  endif()
  set(out "${PROJECT_BINARY_DIR}/generated/protos")
  file(MAKE_DIRECTORY "${out}/pb")
  file(GLOB protos CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.proto")
  set(sources "")
  set(headers "")
  foreach(proto ${protos})
    get_filename_component(name "${proto}" NAME_WE)
    add_custom_command(OUTPUT "${out}/pb/${name}.pb.cc" "${out}/pb/${name}.pb.h" DEPENDS "${proto}"
      COMMAND "${BOLIDE_PROTOC}" "--proto_path=${PROJECT_SOURCE_DIR}/src/${folder}" "--cpp_out=${out}/pb" "${proto}"
      COMMENT "Making C++ of ${name}.proto" VERBATIM)
    list(APPEND sources "${out}/pb/${name}.pb.cc")
    list(APPEND headers "${out}/pb/${name}.pb.h")
  endforeach()
  add_library(${target}_protos OBJECT ${sources})
  target_compile_options(${target}_protos PRIVATE -w -O1)
  target_link_libraries(${target}_protos PUBLIC bolide_grpc)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_protos>)
  # Headers before whoever includes them.
  add_custom_target(${target}_proto_headers DEPENDS ${headers})
  add_dependencies(${target} ${target}_proto_headers)
  target_include_directories(${target} SYSTEM PUBLIC "${out}")
  target_link_libraries(${target} PUBLIC bolide_grpc)
endfunction()
