# A canary is a known bug, planted in one source file by a patch: a test that lets one live is worth nothing.
find_program(PATCH_PROGRAM patch)
# All of them run in one build: without sanitizers, where there is one, they get through more.
set(canary_build ${CMAKE_BINARY_DIR})
if(PLX_LAB_BUILD)
    set(canary_build ${PLX_LAB_BUILD})
endif()
if(NOT TARGET canaries)
    add_custom_target(canaries)
endif()

# The file that a patch changes, with the bug in it: ret_planted. Linked before the archive of what it is a part
# of, it comes in the place of the archive's own. Its text must be there word for word: elsewhere it would be another
# bug, or none. All of the schema is compiled as one file (schema/embed.cmake).
function(plant_canary patch ret_planted)
    get_filename_component(name ${patch} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patch}) # which file it changes
    file(STRINGS ${patch} changed REGEX "^\\+\\+\\+ " LIMIT_COUNT 1)
    string(REGEX REPLACE "^\\+\\+\\+ ([^ \t]+).*" "\\1" changed "${changed}")
    get_filename_component(file ${changed} NAME)
    set(planted ${CMAKE_CURRENT_BINARY_DIR}/canary/${name}/${file})
    add_custom_command(OUTPUT ${planted}
        COMMAND ${PATCH_PROGRAM} --quiet --fuzz=0 --no-backup-if-mismatch -o ${planted}
                ${CMAKE_SOURCE_DIR}/${changed} ${patch}
        DEPENDS ${patch} ${CMAKE_SOURCE_DIR}/${changed})
    if(file MATCHES "\\.sql$")
        get_filename_component(folder ${planted} DIRECTORY)
        file(GLOB schema CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/schema/*.sql)
        list(REMOVE_ITEM schema ${CMAKE_SOURCE_DIR}/${changed})
        add_custom_command(OUTPUT ${folder}/schema.c
            COMMAND ${CMAKE_COMMAND} -E copy ${schema} ${folder}
            COMMAND ${CMAKE_COMMAND} -DIN=${folder} -DOUT=${folder}/schema.c
                    -P ${CMAKE_SOURCE_DIR}/schema/embed.cmake
            DEPENDS ${planted} ${schema} ${CMAKE_SOURCE_DIR}/schema/embed.cmake)
        set(planted ${folder}/schema.c)
    endif()
    set_source_files_properties(${planted} PROPERTIES COMPILE_OPTIONS -g0)
    set(${ret_planted} ${planted} PARENT_SCOPE)
endfunction()

# A program with a canary. Nobody looks into one with a debugger, and there are three hundred of them: without what that
# takes they are built in less time, and are a fifth of the size.
function(canary_program program)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/canary)
    target_link_options(${program} PRIVATE LINKER:-S)
    add_dependencies(canaries ${program})
endfunction()

# What a patch says behind a word of its text: ret_said, or the default.
function(canary_says patch word default ret_said)
    file(STRINGS ${patch} said REGEX "^${word}: " LIMIT_COUNT 1)
    string(REGEX REPLACE "^${word}: " "" said "${said}")
    if(NOT said)
        set(said ${default})
    endif()
    set(${ret_said} ${said} PARENT_SCOPE)
endfunction()
