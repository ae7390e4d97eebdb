# Debian packages: deploy/packages/build.sh, or cpack -G DEB in a build folder configured with CMAKE_INSTALL_PREFIX=/usr.
#
#   libembd0.2          the client library              libembd-dev   headers, CMake package, pkg-config files
#   libembd-data0.2     data sets                       embd          the server
#   libembd-hugectr0.2  model folders of HugeCTR        embd-tools    embctl, embd-bench, completion, man pages
#   libembd-inproc0.2   the server within a trainer, which libembd loads for "inproc:"
#   python3-embd      the Python package, where it is built
# Man pages: section 3 and 7 in libembd-dev, 5 and 8 in embd, 1 in embd-tools.
#
# Each install() names its component; what has none is in no package.
set(libraries libembd0.2 libembd-data0.2 libembd-hugectr0.2 libembd-inproc0.2)
set(packages ${libraries} libembd-dev embd embd-tools)
if(TARGET embd_python)
  list(APPEND packages python3-embd)
  set(component_python3-embd python)
endif()

# Man pages of functions and of the configuration come from the headers and from server/settings.h, those of programs and the
# completion script from the programs themselves.
find_program(EMBD_SCDOC scdoc)
find_program(EMBD_PYTHON3 python3)
set(man ${CMAKE_BINARY_DIR}/man)
if(EMBD_PYTHON3)
  set(scripts ${CMAKE_SOURCE_DIR}/deploy/man)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/embd/*.h ${scripts}/*.py)
  add_custom_command(OUTPUT ${man}/reference
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${man}/man3
    COMMAND ${EMBD_PYTHON3} -B ${scripts}/reference.py ${PROJECT_VERSION} ${man}
    COMMAND ${EMBD_PYTHON3} -B ${scripts}/configuration.py ${PROJECT_VERSION} ${man}
    COMMAND ${CMAKE_COMMAND} -E touch ${man}/reference
    DEPENDS ${sources} ${CMAKE_SOURCE_DIR}/server/settings.h COMMENT "Man pages of the reference" VERBATIM)
  add_custom_target(reference ALL DEPENDS ${man}/reference)
  install(DIRECTORY ${man}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT libembd-dev)
  install(DIRECTORY ${man}/man7 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT libembd-dev)
  install(DIRECTORY ${man}/man5 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT embd)
endif()
if(EMBD_SCDOC)
  add_custom_command(OUTPUT ${man}/embd.8.gz ${man}/embctl.1.gz ${man}/embd-bench.1.gz
    COMMAND ${CMAKE_SOURCE_DIR}/deploy/man/make.sh ${CMAKE_BINARY_DIR}/bin ${man}
    DEPENDS embd-server embctl embd-bench ${CMAKE_SOURCE_DIR}/deploy/man/make.sh COMMENT "Man pages")
  add_custom_target(man ALL DEPENDS ${man}/embctl.1.gz)
  install(FILES ${man}/embd.8.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man8 COMPONENT embd)
  install(FILES ${man}/embctl.1.gz ${man}/embd-bench.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
    COMPONENT embd-tools)
else()
  message(STATUS "No man pages: scdoc is not installed")
endif()
add_custom_command(OUTPUT ${man}/completion COMMAND embctl completion bash > ${man}/completion DEPENDS embctl VERBATIM)
add_custom_target(completion ALL DEPENDS ${man}/completion)
file(MAKE_DIRECTORY ${man})
install(FILES ${man}/completion DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME embctl
  COMPONENT embd-tools)
install(FILES ${CMAKE_SOURCE_DIR}/deploy/prometheus/alerts.yaml ${CMAKE_SOURCE_DIR}/deploy/grafana/embd.json
  ${CMAKE_SOURCE_DIR}/deploy/runbook.md ${CMAKE_SOURCE_DIR}/deploy/CONFIGURATION.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/embd/examples COMPONENT embd)

# Units, with the path that the server is installed to. They are not enabled: systemctl enable --now embd.
foreach(unit embd.service embd@.service)
  file(READ ${CMAKE_SOURCE_DIR}/deploy/systemd/${unit} text)
  string(REPLACE /usr/sbin/embd ${CMAKE_INSTALL_FULL_SBINDIR}/embd text "${text}")
  file(WRITE ${CMAKE_BINARY_DIR}/packages/${unit} "${text}")
  install(FILES ${CMAKE_BINARY_DIR}/packages/${unit} DESTINATION lib/systemd/system COMPONENT embd)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/gpu.conf ${CMAKE_SOURCE_DIR}/deploy/systemd/embd-backup.service
  ${CMAKE_SOURCE_DIR}/deploy/systemd/embd-archive.service
  ${CMAKE_SOURCE_DIR}/deploy/systemd/embd-backup.timer DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/embd/examples COMPONENT embd)

# What Debian wants to see in every package. The date is the last commit's, so that a build can be repeated.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} log -1 --format=%aD OUTPUT_VARIABLE date
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT date)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
endif()
set(EMBD_MAINTAINER "embd maintainers <maintainers@localhost>" CACHE STRING "Who the packages name as their maintainer")
configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog.in ${CMAKE_BINARY_DIR}/packages/changelog.Debian @ONLY)
foreach(package ${libraries})
  string(REGEX REPLACE "[0-9.]+$" "" library ${package})
  file(WRITE ${CMAKE_BINARY_DIR}/packages/${package}/shlibs
    "${library} ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${package} (>= ${PROJECT_VERSION})\n")
  file(WRITE ${CMAKE_BINARY_DIR}/packages/${package}/overrides
    "# CPack writes both scripts for every package with a library; the trigger that Debian wants is there as well.\n"
    "${package}: maintscript-calls-ldconfig [postinst]\n${package}: maintscript-calls-ldconfig [postrm]\n")
  install(FILES ${CMAKE_BINARY_DIR}/packages/${package}/overrides RENAME ${package}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${package})
  string(TOUPPER ${package} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/triggers
    ${CMAKE_BINARY_DIR}/packages/${package}/shlibs)
endforeach()
execute_process(COMMAND gzip -9nfk ${CMAKE_BINARY_DIR}/packages/changelog.Debian)
foreach(package ${packages})
  set(component ${package})
  if(component_${package})
    set(component ${component_${package}})
    set(optional EXCLUDE_FROM_ALL)
  else()
    set(optional)
  endif()
  install(FILES ${CMAKE_BINARY_DIR}/packages/changelog.Debian.gz ${CMAKE_CURRENT_LIST_DIR}/copyright
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component} ${optional})
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_FILE_NAME DEB-DEFAULT)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME embd)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${EMBD_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(same "(= ${PROJECT_VERSION}-1)")

# The first line of a description is the synopsis; each further one stands in the package's page.
set(about "embd is an embedding parameter server: trainers of recommender and other\nsparse models pull embedding rows from it and push gradients to it.\n")
set(CPACK_COMPONENT_LIBEMBD0.2_DESCRIPTION
  "client library of the embedding parameter server embd\n${about}.\nThis is the library that programs which talk to it need.")
set(CPACK_COMPONENT_LIBEMBD-DATA0.2_DESCRIPTION
  "data sets for trainers that use the embedding parameter server embd\n${about}.\nThis library reads and writes data sets in HugeCTR's formats Norm and Raw, and\nbuilds batches.")
set(CPACK_DEBIAN_LIBEMBD-HUGECTR0.2_PACKAGE_DEPENDS "libembd0.2 ${same}")
set(CPACK_COMPONENT_LIBEMBD-HUGECTR0.2_DESCRIPTION
  "model folders of HugeCTR for the embedding parameter server embd\n${about}.\nThis library writes tables as sparse model folders of HugeCTR and reads them.")
set(CPACK_DEBIAN_LIBEMBD0.2_PACKAGE_SUGGESTS "libembd-inproc0.2 ${same}")
set(CPACK_DEBIAN_LIBEMBD-INPROC0.2_PACKAGE_DEPENDS "libembd0.2 ${same}")
set(CPACK_COMPONENT_LIBEMBD-INPROC0.2_DESCRIPTION
  "embedding parameter server embd within a trainer's process\n${about}.\nThis library is the server for jobs on one host: libembd loads it for inproc:.")
set(CPACK_DEBIAN_LIBEMBD-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBEMBD-DEV_PACKAGE_DEPENDS
  "libembd0.2 ${same}, libembd-data0.2 ${same}, libembd-hugectr0.2 ${same}")
set(CPACK_COMPONENT_LIBEMBD-DEV_DESCRIPTION
  "client library of the embedding parameter server embd (development)\n${about}.\nThese are its C headers, and how CMake and pkg-config find it.")
set(CPACK_DEBIAN_EMBD_PACKAGE_SECTION net)
set(CPACK_DEBIAN_EMBD_PACKAGE_SUGGESTS "embd-tools")
set(CPACK_COMPONENT_EMBD_DESCRIPTION
  "embedding parameter server\n${about}.\nThis is the server: tables as shards in memory, snapshots, metrics and a\nstatus page.")
set(CPACK_DEBIAN_EMBD-TOOLS_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_EMBD-TOOLS_PACKAGE_RECOMMENDS "libembd-inproc0.2 ${same}") # restores of a moment
set(CPACK_DEBIAN_EMBD-TOOLS_PACKAGE_DEPENDS "libembd0.2 ${same}, libembd-hugectr0.2 ${same}")
set(CPACK_COMPONENT_EMBD-TOOLS_DESCRIPTION
  "operate and measure embd, the embedding parameter server\n${about}.\nThese are its admin command embctl and its load generator embd-bench.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS 
  "libembd0.2 ${same}, libembd-data0.2 ${same}, libembd-hugectr0.2 ${same}, python3 (>= 3.11), python3-cffi-backend, python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "libembd-inproc0.2 ${same}")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION
  "Python package of embd, the embedding parameter server\n${about}.\nThis is the package embd for numpy and PyTorch.")
include(CPack)
