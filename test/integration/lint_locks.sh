#!/usr/bin/env bash
# What include/tally/lock.h promises is checked: clang accepts a file that keeps to it, and refuses
# one that calls or touches without the lock, or keeps it.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
command -v clang >/dev/null || skip "no clang"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

check() { # what is expected (accepted or refused), what it is about, the body of a function
    cat >"$folder/try.c" <<END
#include "tally/lock.h"

struct box {
    struct tl_mutex lock;
    int n;
};
static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static int guarded TL_GUARDED_BY(lock);
void count(void) TL_REQUIRES(lock);
void waits(void) TL_EXCLUDES(lock);
void add(struct box *b) TL_REQUIRES(b->lock);
void try(struct box *b);
void count(void)
{
    guarded++;
}
void try(struct box *b)
{
    $3
}
END
    local got=accepted
    clang -std=c11 -D_GNU_SOURCE -Iinclude -Wthread-safety -Werror -fsyntax-only "$folder/try.c" \
        2>"$folder/said" || got=refused
    if [[ $got != "$1" ]]; then
        echo "FAIL  $2 is $got"
        cat "$folder/said"
        failed=1
    fi
    cc -std=c11 -D_GNU_SOURCE -Iinclude -Wall -Wextra -Werror -fsyntax-only "$folder/try.c" ||
        { echo "FAIL  another compiler minds $2" && failed=1; }
}

check accepted "a call with the lock" 'waits(); tl_mutex_lock(&lock); count(); guarded = b->n; tl_mutex_unlock(&lock);'
check accepted "a call with a parameter's lock" 'tl_mutex_lock(&b->lock); add(b); tl_mutex_unlock(&b->lock);'
check refused "a call without the lock" '(void)b; count();'
check refused "a look without the lock" 'b->n = guarded;'
check refused "a call with another lock" 'tl_mutex_lock(&lock); add(b); tl_mutex_unlock(&lock);'
check refused "a call with a lock that must not be held" '(void)b; tl_mutex_lock(&lock); waits(); tl_mutex_unlock(&lock);'
check refused "a lock that is kept" '(void)b; tl_mutex_lock(&lock);'
check refused "a lock that is given back twice" '(void)b; tl_mutex_lock(&lock); tl_mutex_unlock(&lock); tl_mutex_unlock(&lock);'
exit $failed
