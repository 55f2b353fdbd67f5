# What completes command lines of all programs of Tally in bash; scripts/gen-completion puts it into
# each program's file, because bash loads only the one that it needs, and behind it the tables:
#
#   SPEC COMMAND    sets, for the program (COMMAND empty) or for one of its commands: flags (options
#                   that stand alone), takes (those with a value), commands, places (what arguments
#                   are, one after the other), has_more (1: the last of them may be repeated)
#   SPEC COMMAND OPTION    also sets kind: what the value of that option is
#
# What something is: files, folders, program, pids, nothing, or "words A B C".
# shellcheck shell=bash

# Names of files (-f) or folders (-d).  bash-completion knows more about them, e.g. what ~ is.
_tally_files() {
    if declare -F _filedir >/dev/null; then
        _filedir "${1#-f}"
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
    fi
}

# Completes $cur, a word or what is behind its "=", as something of that kind.
_tally_offer() { # KIND
    case $1 in
    words\ *) mapfile -t COMPREPLY < <(compgen -W "${1#words }" -- "$cur") ;;
    files) _tally_files -f ;;
    folders) _tally_files -d ;;
    pids)
        mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" ps 2>/dev/null |
            awk '$1 ~ /^[0-9]+$/ {print $1}')" -- "$cur")
        ;;
    esac
}

# A word that ends with "=" is not finished; and where "=" does not part words, what is before it
# belongs to the answer.
_tally_finish() {
    local i
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
    if [[ ${COMP_WORDS[COMP_CWORD]} == ?*=* && $cur != "${COMP_WORDS[COMP_CWORD]}" ]]; then
        for i in "${!COMPREPLY[@]}"; do
            COMPREPLY[i]=${COMP_WORDS[COMP_CWORD]%%=*}=${COMPREPLY[i]}
        done
    fi
    return 0
}

# From word number $1 on the line is another program's.
_tally_other_program() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif [[ $1 -eq $COMP_CWORD && $cur != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
    else
        _tally_offer files
    fi
    return 0
}

# Whether the word is in the list.
_tally_has() { # WORD LIST
    [[ -n $1 && " $2 " == *" $1 "* ]]
}

_tally_complete() { # SPEC
    local spec=$1 flags takes commands places has_more kind cur word command='' place=0
    local words=() starts=() i n=0 is_open=0 is_value=0 are_options_over=0
    # Words as the program sees them: bash parts them at "=".  starts has where each of them begins.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == = && n -gt 0 ]]; then
            words[n - 1]+='=' is_open=1
        elif ((is_open)); then
            words[n - 1]+=$word is_open=0
        else
            words[n]=$word starts[n]=$i n=$((n + 1))
        fi
    done
    COMPREPLY=()
    cur=${words[n - 1]}
    "$spec" ""
    # What stands before the word in question decides what it is.
    for ((i = 1; i < n - 1; i++)); do
        word=${words[i]}
        if ((is_value)); then
            is_value=0
        elif [[ $word == -- && are_options_over -eq 0 ]]; then
            are_options_over=1
        elif [[ $word == -?* && are_options_over -eq 0 ]]; then
            _tally_has "$word" "$takes" && is_value=1
        elif [[ -n $commands ]]; then
            _tally_has "$word" "$commands" || return 0
            command=$word
            "$spec" "$command"
        elif [[ ${places[place]-} == program ]]; then
            _tally_other_program "${starts[i]}"
            return 0
        else
            place=$((place + 1))
        fi
    done
    if ((is_value)); then
        "$spec" "$command" "${words[n - 2]}"
        _tally_offer "$kind"
    elif [[ $cur == --*=* && are_options_over -eq 0 ]]; then
        "$spec" "$command" "${cur%%=*}"
        cur=${cur#*=}
        _tally_offer "$kind"
    elif [[ $cur == -* && are_options_over -eq 0 ]]; then
        local names=$flags
        for word in $takes; do
            [[ $word == --* ]] && word+='='
            names+=" $word"
        done
        _tally_offer "words $names"
    elif [[ -n $commands ]]; then
        _tally_offer "words $commands"
    else
        if ((has_more && place >= ${#places[@]})); then
            place=$((${#places[@]} - 1))
        fi
        if [[ ${places[place]-} == program ]]; then
            _tally_other_program "${starts[n - 1]}"
        elif [[ $cur == *=* && ${places[place]-} == words\ * ]]; then
            # A word such as priority=high: bash wants only what is behind the "=".
            local before=${cur%%=*}=
            _tally_offer "${places[place]}"
            for i in "${!COMPREPLY[@]}"; do
                COMPREPLY[i]=${COMPREPLY[i]#"$before"}
            done
            cur=${cur#*=}
        else
            _tally_offer "${places[place]:-nothing}"
        fi
    fi
    _tally_finish
}
