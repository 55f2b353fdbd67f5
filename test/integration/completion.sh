#!/usr/bin/env bash
# Completion offers what --help shows: every option of every program and command, the values of
# options that have a list, the commands themselves; files, folders and other programs where those
# belong.  The functions run in a bash of their own, and, where there is zsh, in one with a terminal.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc

build=$(realpath "${TALLY_BUILD:-build}")
bash_files=$build/share/bash-completion/completions
zsh_files=$build/share/zsh/site-functions
export PATH=$build/bin:$PATH
need_built "$bash_files/tally-run"
failed=0
checks=0
expect() { # WHAT ACTUAL WANTED
    checks=$((checks + 1))
    if [ "$2" != "$3" ]; then
        echo "FAIL  $1: '${2//$'\n'/ }', not '${3//$'\n'/ }'"
        failed=1
    fi
}

# --- what --help shows ----------------------------------------------------------------------------

# Lines such as "  -p, --priority=high|low|N   text", each option with its argument behind it.
help_of() { # COMMAND...
    "$@" --help 2>&1 | grep -E '^ {1,8}-' | sed -E 's/^ *//; s/(  | [A-Z]).*//' | tr -d ' '
}
options_of() { help_of "$@" | sed -E 's/=.*//' | tr , '\n' | sort -u; }
# OPTION VALUE VALUE..., of those that have a list.  What is in capitals stands for something else.
lists_of() {
    local line name value values
    while IFS= read -r line; do
        name=${line##*,} values=
        [[ $name == *=*\|* ]] || continue
        for value in $(tr '|' ' ' <<<"${name#*=}"); do
            [[ $value =~ [A-Z] ]] || values+=" $value"
        done
        echo "${name%%=*}$values"
    done < <(help_of "$@")
}

# --- bash -----------------------------------------------------------------------------------------

# What is offered for the last word; words are parted at "=" as bash does it.
offered() { # WORD...
    # shellcheck disable=SC2016
    bash --norc -c '
        . "$0/$(basename "$1")"
        function=$(complete -p "$(basename "$1")")
        function=${function#*-F } function=${function%% *}
        for word; do
            while [[ $word == *=* && ! ($word == =) ]]; do
                [ -z "${word%%=*}" ] || COMP_WORDS+=("${word%%=*}")
                COMP_WORDS+=("=")
                word=${word#*=}
                [ -n "$word" ] || continue 2
            done
            COMP_WORDS+=("$word")
        done
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        eval "$MORE"
        "$function" "${COMP_WORDS[0]}"
        [ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\n" "${COMPREPLY[@]}"
    ' "$bash_files" "$@" | sort -u
}
export MORE=
lines() { printf '%s\n' "$@" | sort -u; }

check_options() { # COMMAND...
    local option values
    expect "$* -" "$(offered "$@" - | sed 's/=$//' | sort -u)" "$(options_of "$@")"
    while read -r option values; do
        # shellcheck disable=SC2086
        expect "$* $option=" "$(offered "$@" "$option=")" "$(lines $values)"
        # shellcheck disable=SC2086
        expect "$* $option X" "$(offered "$@" "$option" '')" "$(lines $values)"
        expect "$* $option=?" "$(offered "$@" "$option=${values:0:2}")" \
            "$(tr ' ' '\n' <<<"$values" | grep -e "^${values:0:2}" | sort -u)"
    done < <(lists_of "$@")
}

programs=0
for program in "$build"/bin/*; do
    name=$(basename "$program")
    programs=$((programs + 1))
    # `tally` tells its two options in a sentence.
    if [ "$name" = tally ]; then
        expect "tally -" "$(offered tally -)" "$(lines -h --help -V --version)"
    else
        check_options "$name"
    fi
done
commands=$(tally --help | sed -nE 's/^  ([a-z]+) .*/\1/p' | sort)
expect "tally X" "$(offered tally '')" "$commands"
for command in $commands; do
    check_options tally "$command"
done
expect "tally-jit X" "$(offered tally-jit '')" "$(lines compile get status stop)"
check_options tally-jit compile
check_options tally-jit get
expect "what takes nothing" "$(offered tally-jit status '' && offered tally ps '')" ""
expect "what takes options only" "$(offered tally-sim '')" ""

# Options with a value end with "=", others do not.
expect "an option with a value" "$(offered tally-run --dev)" "--device="
expect "one without" "$(offered tally-run --verb)" "--verbose"
# Policies come from the program, not from its help.
policies=$(tally policy --list | cut -d' ' -f1 | sort)
for name in tally-run tallyd tally-sim; do
    expect "$name --policy=" "$(offered $name --policy=)" "$policies"
done
expect "tally policy X" "$(offered tally policy '')" "$policies"
expect "what may be set" "$(offered tally set 12 pri)" \
    "$(lines priority= priority=high priority=low)"
expect "behind its =" "$(offered tally set 12 priority=h)" high
expect "again and again" "$(offered tally set 12 pause res)" resume

# Files and folders.
mkdir -p "$TMPDIR/place/folder.d"
touch "$TMPDIR/place/file.ptx"
cd "$TMPDIR/place"
expect "files" "$(offered ptx-rewrite --check f)" "$(lines file.ptx folder.d)"
expect "a file behind =" "$(offered tally report --html=fi)" file.ptx
expect "only folders" "$(offered tally-run --report=f)" folder.d
expect "folders of reports" "$(offered tally report f)" folder.d
expect "what is no file" "$(offered tally-run --job=f)" ""

# The program that tally-run runs, and its words, are completed as its own.
expect "the program" "$(offered tally-run --priority=low -v tally-si)" tally-sim
expect "behind --" "$(offered tally-run -- tally-si)" tally-sim
expect "its options are its own" "$(offered tally-run ls --device=)" ""
# shellcheck disable=SC2016
MORE='_command_offset() { COMPREPLY=("at $1 of ${COMP_WORDS[*]}"); }'
expect "handed over" "$(offered tally-run --policy=tally -p low python3 tr)" \
    "at 6 of tally-run --policy = tally -p low python3 tr"
expect "the program's own name" "$(offered tally-run -q py)" "at 2 of tally-run -q py"
# Where "=" does not part words, all of the word is answered.
MORE='COMP_WORDS=(tally-run --device=s); COMP_CWORD=1'
expect "a whole word" "$(offered tally-run)" "--device=soft"
MORE=

# --- zsh ------------------------------------------------------------------------------------------

zsh=left-out
if ! command -v zsh >/dev/null; then
    echo "zsh is not here, so its completion was not tried"
elif ! zsh -fc 'zmodload zsh/zpty && autoload +X -Uz compinit' 2>/dev/null; then
    echo "this zsh has no terminals or no completion, so its part was not tried"
else
    zsh=tried
    # A zsh in a terminal completes lines; what it would offer is written to a file, END behind it.
    cat >"$TMPDIR/inner.zsh" <<ZSH
fpath=($zsh_files \$fpath)
autoload -Uz compinit
compinit -u -D
offer() {
    compadd() {
        local -a found
        if [[ -z \${@[(r)-[OAD]*]} ]]; then
            builtin compadd -O found "\$@"
            print -rl -- \$found >>$TMPDIR/offers
        fi
        builtin compadd "\$@"
    }
    _main_complete
    unfunction compadd
    compstate[insert]= compstate[list]=
}
zle -C offer complete-word offer
finish() { print END >>$TMPDIR/offers; zle kill-whole-line }
zle -N finish
bindkey '^I' offer
bindkey '^X' finish
print READY >$TMPDIR/ready
ZSH
    cat >"$TMPDIR/outer.zsh" <<'ZSH'
zmodload zsh/zpty zsh/zselect
zpty inner zsh -f -i
zpty -w inner "source $TMPDIR/inner.zsh"
wait_for() { # TEXT FILE
    local i text
    for ((i = 0; i < 1000; i++)); do
        zpty -r -t inner text 2>/dev/null
        grep -qx -- $1 $2 2>/dev/null && return 0
        zselect -t 2
    done
    print "zsh does not answer" >&2
    return 1
}
wait_for READY $TMPDIR/ready || exit 1
for line in ${(f)"$(<$TMPDIR/lines)"}; do
    : >$TMPDIR/offers
    zpty -w -n inner "$line"$'\t\x18'
    wait_for END $TMPDIR/offers || exit 1
    print -r -- "$line :: $(grep -vx END $TMPDIR/offers | sort -u | tr '\n' ' ')"
done
ZSH
    cat >"$TMPDIR/lines" <<'LINES'
tally-run --device=
tally-run --fail=o
tally-run --report=
tally-run --policy=sal
tally-run tally-si
tally-run tally-jit 
tally 
tally report --sort=p
tally set 12 pri
tally-jit compile --
ptx-rewrite --variant=
ptx-rewrite fi
LINES
    zsh -f "$TMPDIR/outer.zsh" >"$TMPDIR/answers"
    answer() { sed -n "s/^${1//\//\\/} :: *//p" "$TMPDIR/answers" | sed 's/ *$//'; }
    words() { echo "$*"; }
    # shellcheck disable=SC2046,SC2086
    {
        expect "zsh: values" "$(answer 'tally-run --device=')" "auto gpu soft"
        expect "zsh: a value" "$(answer 'tally-run --fail=o')" open
        expect "zsh: a folder" "$(answer 'tally-run --report=')" folder.d
        expect "zsh: a policy" "$(answer 'tally-run --policy=sal')" salus
        expect "zsh: a program" "$(answer 'tally-run tally-si')" tally-sim
        expect "zsh: its words" "$(answer 'tally-run tally-jit ')" "compile get status stop"
        expect "zsh: commands" "$(answer 'tally ')" "$(words $commands)"
        expect "zsh: p99, preempted" "$(answer 'tally report --sort=p')" "p99 preempted"
        expect "zsh: set" "$(answer 'tally set 12 pri')" "priority= priority=high priority=low"
        expect "zsh: options" "$(answer 'tally-jit compile --' | tr -d =)" \
            "$(words $(options_of tally-jit compile | grep -e '^--'))"
        expect "zsh: variants" "$(answer 'ptx-rewrite --variant=')" "persistent slice ticket"
        expect "zsh: a file" "$(answer 'ptx-rewrite fi')" file.ptx
    }
fi

[ $failed -eq 0 ] && echo "$programs programs, $checks questions; zsh: $zsh"
exit $failed
