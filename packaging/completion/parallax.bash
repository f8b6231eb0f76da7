# bash completion for parallax(8). The words come from the command itself, so they are always its own.
# shellcheck shell=bash

_parallax() {
    local current=${COMP_WORDS[COMP_CWORD]} words=() word names state=()
    local -i i

    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        --state-dir | --config) state+=("$word" "${COMP_WORDS[++i]}") ;;
        --wait) i+=1 ;;
        -* | =) ;;
        *) words+=("$word") ;;
        esac
    done
    case $current in
    -*)
        mapfile -t COMPREPLY < <(compgen -W "$(parallax __complete "${words[@]:0:2}" 2>/dev/null)" -- "$current")
        [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
        return
        ;;
    esac
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --volume | --state-dir | --config)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames
        return
        ;;
    esac
    if ((${#words[@]} < 2)) && [[ ${words[0]-} != @(tree|diff|find|bisect|rewind|defrag) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(parallax __complete "${words[@]}" 2>/dev/null)" -- "$current")
        return
    fi
    # The names of stores and virtual disks, and of files where a command takes them.
    if [[ ${words[0]} == @(store|tree) || ${words[*]:0:2} == "vdi list" ]]; then
        names=$(parallax store list -q "${state[@]}" 2>/dev/null | cut -d' ' -f1)
    else
        names=$(parallax vdi list -q "${state[@]}" 2>/dev/null | cut -d' ' -f1)
    fi
    mapfile -t COMPREPLY < <(compgen -W "$names" -- "$current")
    case ${words[*]:0:2} in
    "vdi import" | "vdi export" | "vdi import-diff" | "vdi export-diff" | "store add-volume")
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")
        ;;
    esac
}
complete -F _parallax parallax
