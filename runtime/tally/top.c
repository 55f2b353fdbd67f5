/* `tally top`: a live view in a terminal.
 *
 * By hand, with the few control sequences that every terminal since the VT100 has: a frame is a
 * page of text that is written over the last one, so there is nothing for a library to save, and
 * tally links nothing more. */
#include "runtime/tally/top.h"
#include "runtime/job/settings.h"
#include "tally/clock.h"
#include "tally/options.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

struct options {
    struct cli_daemon_options daemon;
    bool is_once, is_csv, has_no_colours;
    uint64_t interval_ns;
    struct top_view view;
};

enum { ONCE = 256, CSV, NO_COLOUR, SORT, FILTER, INTERVAL };

static const struct argp_option option_table[] = {
    {"once", ONCE, NULL, 0, "Print one frame and end", 0},
    {"csv", CSV, NULL, 0, "Print one table of comma-separated values and end", 0},
    {"interval", INTERVAL, "TIME", 0, "Time between frames; 1s if not said", 0},
    {"sort", SORT, "level|share|memory|wait|pid", 0, "Order of the jobs", 0},
    {"filter", FILTER, "TEXT", 0, "Only jobs with that in their name, command or user", 0},
    {"no-color", NO_COLOUR, NULL, 0, "Without colours (NO_COLOR)", 0},
    CLI_DAEMON_OPTIONS,
    {0},
};

/* One option of the command line (argp). */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ONCE:
        o->is_once = true;
        return 0;
    case CSV:
        o->is_csv = true;
        return 0;
    case NO_COLOUR:
        o->has_no_colours = true;
        return 0;
    case INTERVAL:
        if (tl_settings_time(arg, &o->interval_ns) < 0 || o->interval_ns < 50 * TL_MS_NS)
            argp_error(state, "--interval wants a time of 50ms or more, not '%s'", arg);
        return 0;
    case SORT:
        for (int i = 0; i < TOP_SORTS; i++)
            if (strcmp(arg, top_sort_names[i]) == 0) {
                o->view.sort = (enum top_sort)i;
                return 0;
            }
        argp_error(state, "--sort: level, share, memory, wait or pid, not '%s'", arg);
        return EINVAL;
    case FILTER:
        snprintf(o->view.filter, sizeof o->view.filter, "%s", arg);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "nothing is expected here: '%s'", arg);
        return EINVAL;
    default:
        return cli_daemon_option(&o->daemon, key, arg);
    }
}

/* --- asking tallyd ---------------------------------------------------------------------------- */

static int look(struct options *o)
{
    static uint64_t last_ns;
    struct top_view *v = &o->view;
    int fd = cli_daemon_open(&o->daemon);
    if (fd < 0)
        return fd;
    cli_clients_finish(&v->before);
    v->before = v->now;
    v->now = (struct cli_clients){0};
    int rc = cli_clients_ask(fd, &v->now);
    close(fd);
    uint64_t now = tl_clock_ns();
    v->elapsed_ns = last_ns != 0 ? now - last_ns : 0;
    last_ns = now;
    v->n_all = v->now.n;
    top_devices_look(v);
    top_arrange(v);
    return rc;
}

/* Asks tallyd for a change; what it says is shown. */
static void change(struct options *o, enum tl_wire_kind kind, void *question, size_t bytes)
{
    struct tl_wire_packet packet;
    int fd = cli_daemon_open(&o->daemon);
    if (fd >= 0 && cli_daemon_ask(fd, kind, question, bytes, &packet) == 0)
        snprintf(o->view.prompt, sizeof o->view.prompt, "%s%.140s",
                 packet.m.answer.code < 0 ? "not done: " : "done",
                 packet.m.answer.code < 0 ? packet.m.answer.text : "");
    if (fd >= 0)
        close(fd);
}

/* --- the terminal ----------------------------------------------------------------------------- */

static struct termios before;
static volatile sig_atomic_t is_ending, has_resized;

static void on_signal(int signal_number)
{
    if (signal_number == SIGWINCH)
        has_resized = 1;
    else
        is_ending = 1;
}

static void leave_terminal(void)
{
    static const char text[] = "\033[?25h\033[?1049l";
    (void)!write(STDOUT_FILENO, text, sizeof text - 1);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static bool enter_terminal(void)
{
    static const char text[] = "\033[?1049h\033[?25l";
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    struct termios raw;
    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return false;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    (void)!write(STDOUT_FILENO, text, sizeof text - 1);
    atexit(leave_terminal);
    return true;
}

static void measure(struct top_view *v)
{
    struct winsize size = {0};
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    v->columns = is_known ? size.ws_col : 80;
    v->rows = is_known ? size.ws_row : 24;
}

static void show(struct top_view *v)
{
    struct tl_buf frame = {0};
    tl_buf_puts(&frame, "\033[H\033[2J");
    measure(v);
    top_draw(&frame, v);
    if (!frame.failed)
        (void)!write(STDOUT_FILENO, frame.p, frame.n);
    tl_buf_finish(&frame);
}

/* --- keys ------------------------------------------------------------------------------------- */

enum { ESCAPE = 27 };

/* A key, or 0 after so long, or if there is nothing more to read. */
static int read_key(int timeout_ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char c = 0;
    if (poll(&p, 1, timeout_ms) <= 0)
        return 0;
    if (read(STDIN_FILENO, &c, 1) <= 0)
        is_ending = 1; /* nobody is there to press one */
    return (unsigned char)c;
}

/* What an arrow sends, as the key that does the same; others that begin with ESC do nothing. */
static int read_escape(void)
{
    int key = read_key(0);
    if (key != '[' && key != 'O')
        return 0;
    do
        key = read_key(0);
    while (key != 0 && (key < '@' || key > '~'));
    return key == 'A' ? 'k' : key == 'B' ? 'j' : 0;
}

static bool is_sure(struct top_view *v, const char *question)
{
    snprintf(v->prompt, sizeof v->prompt, "%.140s (y/n)", question);
    show(v);
    int key = 0;
    while (key == 0 && is_ending == 0)
        key = read_key(1000);
    v->prompt[0] = 0;
    return key == 'y' || key == 'Y';
}

/* A line that is typed behind a question; false if it was given up. */
static bool read_line(struct top_view *v, const char *question, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (;;) {
        snprintf(v->prompt, sizeof v->prompt, "%.60s: %.60s_", question, text);
        show(v);
        int key = read_key(1000);
        if (is_ending != 0 || key == ESCAPE) {
            v->prompt[0] = 0;
            return false;
        }
        if (key == '\n' || key == '\r')
            break;
        if ((key == 127 || key == 8) && n > 0)
            text[--n] = 0;
        else if (key >= ' ' && key < 127 && n + 1 < size) {
            text[n++] = (char)key;
            text[n] = 0;
        }
    }
    v->prompt[0] = 0;
    return true;
}

static const struct tl_wire_status *selected(const struct top_view *v)
{
    for (size_t i = 0; i < v->now.n; i++)
        if (v->now.items[i].pid == v->selected)
            return &v->now.items[i];
    return NULL;
}

static void move(struct top_view *v, int by)
{
    size_t at = 0;
    while (at < v->now.n && v->now.items[at].pid != v->selected)
        at++;
    if (v->now.n == 0)
        v->selected = 0;
    else if (at == v->now.n)
        v->selected = v->now.items[by > 0 ? 0 : v->now.n - 1].pid;
    else
        v->selected = v->now.items[(at + v->now.n + (size_t)(by + (int)v->now.n)) % v->now.n].pid;
}

/* Priority up or down, and pause or its end, of the chosen job; after a question. */
static void change_job(struct options *o, int key)
{
    const struct tl_wire_status *s = selected(&o->view);
    char question[160];
    if (s == NULL) {
        snprintf(o->view.prompt, sizeof o->view.prompt, "choose a job first: j, k");
        return;
    }
    struct tl_wire_set set = {.pid = s->pid, .client = s->client};
    if (key == 'p') {
        set.what = TL_SET_PAUSED;
        set.client.is_paused = s->client.is_paused == 0;
        snprintf(question, sizeof question, "%s process %d (%.60s)?",
                 set.client.is_paused != 0 ? "pause" : "resume", s->pid, s->job);
    } else {
        int level = s->client.level + (key == '+' ? 10 : -10);
        set.what = TL_SET_LEVEL;
        set.client.level = level > TL_LEVEL_MAX   ? TL_LEVEL_MAX
                           : level < TL_LEVEL_MIN ? TL_LEVEL_MIN
                                                  : level;
        snprintf(question, sizeof question, "priority %d for process %d (%.60s)?", set.client.level,
                 s->pid, s->job);
    }
    if (is_sure(&o->view, question))
        change(o, TL_WIRE_SET, &set, sizeof set);
}

static void change_policy(struct options *o)
{
    struct tl_wire_policy policy = {0};
    char question[96];
    if (!read_line(&o->view, "policy", policy.policy, sizeof policy.policy) ||
        policy.policy[0] == 0)
        return;
    snprintf(question, sizeof question, "policy %s for all jobs?", policy.policy);
    if (is_sure(&o->view, question))
        change(o, TL_WIRE_POLICY, &policy, sizeof policy);
}

/* What a key does. */
static void obey(struct options *o, int key)
{
    struct top_view *v = &o->view;
    switch (key) {
    case 'q':
        is_ending = 1;
        break;
    case 's':
        v->sort = (enum top_sort)((v->sort + 1) % TOP_SORTS);
        top_arrange(v);
        break;
    case 'r':
        v->is_reversed = !v->is_reversed;
        top_arrange(v);
        break;
    case '\t':
        v->page++;
        break;
    case '/':
        (void)read_line(v, "only jobs with", v->filter, sizeof v->filter);
        top_arrange(v);
        break;
    case 'j':
    case 'k':
        move(v, key == 'j' ? 1 : -1);
        break;
    case '+':
    case '-':
    case 'p':
        change_job(o, key);
        break;
    case 'P':
        change_policy(o);
        break;
    default:
        snprintf(
            v->prompt, sizeof v->prompt,
            "j k choose  + - priority  p pause  P policy  s r sort  / only  Tab columns  q end");
    }
}

/* Frames and keys until it is ended. */
static int watch(struct options *o)
{
    if (!enter_terminal()) {
        cli_complain("top wants a terminal; --once, --csv and --json do without");
        return CLI_FAILED;
    }
    while (is_ending == 0) {
        if (look(o) < 0)
            return CLI_FAILED;
        uint64_t until = tl_clock_ns() + o->interval_ns, now;
        do {
            show(&o->view);
            now = tl_clock_ns();
            int key = read_key(now < until ? (int)((until - now) / TL_MS_NS) : 0);
            if (key == 0 && has_resized == 0)
                break;
            has_resized = 0;
            if (key != 0) {
                o->view.prompt[0] = 0;
                if (key != ESCAPE || (key = read_escape()) != 0)
                    obey(o, key);
            }
        } while (is_ending == 0 && tl_clock_ns() < until);
    }
    return CLI_OK;
}

/* Waiting is told by two looks. */
static int look_twice(struct options *o)
{
    uint64_t quarter = TL_SECOND_NS / 4, ns = o->interval_ns < quarter ? o->interval_ns : quarter;
    if (look(o) < 0)
        return -1;
    if (o->daemon.as_json)
        return 0;
    (void)poll(NULL, 0, (int)(ns / TL_MS_NS));
    return look(o);
}

static int print_once(struct options *o)
{
    struct tl_buf out = {0};
    if (look_twice(o) < 0)
        return CLI_FAILED;
    if (o->daemon.as_json) {
        struct cli_device devices[CLI_DEVICES];
        for (size_t i = 0; i < o->view.n_devices; i++)
            devices[i] = o->view.devices[i].now;
        cli_clients_json(&out, &o->view.now, devices, o->view.n_devices);
    } else if (o->is_csv) {
        top_csv(&out, &o->view);
    } else {
        measure(&o->view);
        o->view.rows = 10000;
        if (!isatty(STDOUT_FILENO))
            o->view.columns = 200; /* nothing is cut off that has no edge */
        o->view.has_colours = false;
        top_draw(&out, &o->view);
        tl_buf_putc(&out, '\n');
    }
    return cli_daemon_print(&out);
}

/* `tally top`: see tally-top(1). */
int cli_top(int argc, char **argv)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        NULL,
        "Watches the jobs that share the device.  Any key that means nothing shows those that "
        "do.\vExit status: 0, 1 if tallyd cannot be asked, 2 if the command line is wrong.",
        NULL,
        NULL,
        NULL};
    static struct options o = {.interval_ns = TL_SECOND_NS};
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    argp_err_exit_status = CLI_USAGE;
    tl_options_parse(NULL, &argp, argc, argv, 0, NULL, &o);
    o.view.has_colours = !o.has_no_colours && (no == NULL || no[0] == 0) && term != NULL &&
                         strcmp(term, "dumb") != 0;
    int rc = o.is_once || o.is_csv || o.daemon.as_json ? print_once(&o) : watch(&o);
    cli_clients_finish(&o.view.now);
    cli_clients_finish(&o.view.before);
    return rc;
}
