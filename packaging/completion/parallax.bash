# bash completion for parallax(8). The words come from the command itself, so they are always its own.
# shellcheck shell=bash

# The words of the line so far, the one at the cursor last. Bash's own are cut at '@' and '=' as well.
_parallax_words() {
    local line=${COMP_LINE:0:COMP_POINT}

    read -ra typed <<<"$line"
    [[ $line != *[[:blank:]] ]] || typed+=("")
}

# Whether an option's value is the word behind it; $usage says which have one.
_parallax_takes_value() {
    local line

    [[ $1 == --* && $1 != *=* ]] || return 1
    for line in "${usage[@]:2}"; do [[ ${line%% *} != "$1" ]] || return 0; done
    return 1
}

# _parallax_reply WORDS BEGUN: those words that begin so.
_parallax_reply() { mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$1" -- "$2"); }

_parallax_files() {
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$1")
    compopt -o filenames 2>/dev/null
}

# _parallax_labels STORE/VDI BEGUN: its labels, behind '..' too.
_parallax_labels() {
    local before=""

    [[ $2 != *..* ]] || before=${2%..*}..
    _parallax_reply "$(parallax snap list "$1" --labels --columns labels -q "${state[@]}" 2>/dev/null |
        tr -d ' ' | tr ',' '\n' | sed "s/^/$before/")" "$2"
}

# _parallax_argument WHAT BEGUN: WHAT is a word of the command's usage, such as STORE/VDI[@A..B] or [STORE|PATH].
_parallax_argument() {
    local what=$1 begun=$2 disk=${2%%@*}

    if [[ $what == *VDI*@* && $begun == *@* ]]; then
        _parallax_labels "$disk" "${begun#*@}"
        [[ $COMP_WORDBREAKS == *@* ]] || COMPREPLY=("${COMPREPLY[@]/#/$disk@}")
        return
    fi
    if [[ $what == *STORE/NEW* ]]; then
        _parallax_reply "$(parallax store list --columns name -q "${state[@]}" 2>/dev/null | sed 's/ *$/\//')" "$begun"
        compopt -o nospace 2>/dev/null
    elif [[ $what == *STORE* && ($what != *STORE/VDI* || $what == *"STORE[/VDI"*) ]]; then
        _parallax_reply "$(parallax store list --columns name -q "${state[@]}" 2>/dev/null)" "$begun"
    fi
    if [[ $what == *VDI* ]]; then
        _parallax_reply "$(parallax vdi list --columns name -q "${state[@]}" 2>/dev/null)" "$begun"
    fi
    if [[ $what == *@(PATH|FILE|DIR)* ]]; then _parallax_files "$begun"; fi
}

# _parallax_value OPTION BEGUN: by what the usage calls its value: on|off|auto, SNAPSHOT, PATH...
_parallax_value() {
    local line word what=""

    for line in "${usage[@]:2}"; do [[ ${line%% *} != "$1" ]] || what=${line#* }; done
    case $what in
    SNAPSHOT)
        for word in "${typed[@]:1}"; do
            if [[ $word == */* && $word != -* ]]; then
                _parallax_labels "${word%%@*}" "$2"
                return
            fi
        done
        ;;
    PATH* | FILE* | DIR*) _parallax_files "$2" ;;
    [a-z]*"|"*) _parallax_reply "${what//|/ }" "$2" ;;
    esac
}

_parallax() {
    local typed=() usage=() words=() state=() arguments=() current previous word what
    local -i i behind=0

    COMPREPLY=()
    _parallax_words
    current=${typed[-1]} previous=${typed[-2]}
    for ((i = 1; i < ${#typed[@]} - 1; i++)); do
        word=${typed[i]}
        case $word in
        --state-dir | --config) state+=("$word" "${typed[++i]}") ;;
        --wait) i+=1 ;;
        -*) ;;
        *) words+=("$word") ;;
        esac
    done
    if ((${#words[@]})); then
        mapfile -t usage < <(parallax __complete --usage "${words[@]:0:2}" 2>/dev/null)
    fi
    if [[ $current == --*=* ]]; then
        _parallax_value "${current%%=*}" "${current#*=}"
        [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}")
        return
    elif [[ $current == -* ]]; then
        _parallax_reply "$(parallax __complete "${words[@]:0:2}" 2>/dev/null)" "$current"
        [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null
        return
    elif [[ $previous == @(--state-dir|--config) ]] || _parallax_takes_value "$previous"; then
        if ((${#usage[@]})); then _parallax_value "$previous" "$current"; else _parallax_files "$current"; fi
        return
    elif ((!${#usage[@]} || ${#words[@]} < usage[0])); then
        _parallax_reply "$(parallax __complete "${words[@]}" 2>/dev/null)" "$current"
        return
    elif [[ ${words[0]} == help ]]; then
        _parallax_reply "$(parallax __complete "${words[@]:1}" 2>/dev/null | grep -v ^-)" "$current"
        return
    fi
    for ((i = 1; i < ${#typed[@]} - 1; i++)); do
        if _parallax_takes_value "${typed[i]}"; then i+=1; elif [[ ${typed[i]} != -* ]]; then behind+=1; fi
    done
    behind=$((behind - usage[0]))
    read -ra arguments <<<"${usage[1]}"
    ((${#arguments[@]})) || return
    what=${arguments[behind < ${#arguments[@]} ? behind : ${#arguments[@]} - 1]}
    ((behind < ${#arguments[@]})) || [[ $what == *...* ]] || return
    [[ $what != *MORE* ]] || what=${arguments[0]}
    _parallax_argument "$what" "$current"
}
complete -F _parallax parallax
