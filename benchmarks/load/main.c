/* load ENGINE_PORT: an engine and the clients of a proxy before it, in one thread with one clock.
 *
 * Told on standard input, a line each, what to do:
 *
 *     group clients=64 arrivals=closed plan=answer
 *     run port=8080 warm_s=0.5 window_s=2 pids=4711
 *     release
 *
 * Says "ready" when the engine listens and then what the runs gave, a line of JSON each.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "engine.h"
#include "groups.h"
#include "loop.h"
#include "runs.h"

static char input[8192];
static size_t input_size;

static void obey(char *line) {
    bool known = true;
    if (strncmp(line, "group ", 6) == 0)
        known = group_add(line + 6);
    else if (strncmp(line, "run ", 4) == 0)
        known = run_start(line + 4);
    else if (strcmp(line, "release") == 0)
        run_release();
    else
        known = false;
    if (!known) {
        fprintf(stderr, "load: can't do: %s\n", line);
        exit(2);
    }
}

static void input_ready(struct watched *watched, uint32_t events) {
    (void)events;
    ssize_t size = read(watched->fd, input + input_size, sizeof input - 1 - input_size);
    if (size <= 0)
        exit(0);
    input_size += (size_t)size;
    input[input_size] = '\0';
    char *line = input, *end;
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        obey(line);
        line = end + 1;
    }
    input_size -= (size_t)(line - input);
    memmove(input, line, input_size);
}

static void allow_many_sockets(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        fail("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        fail("setrlimit");
}

int main(int count, char **arguments) {
    static struct watched standard_input = {STDIN_FILENO, input_ready};
    if (count != 2) {
        fprintf(stderr, "usage: load ENGINE_PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    allow_many_sockets();
    loop_open();
    engine_listen(atoi(arguments[1]));
    loop_watch(&standard_input, EPOLLIN);
    puts("ready");
    fflush(stdout);
    for (;;) {
        unsigned long long next = run_do_due();
        loop_once(next < now_ns() + NS_PER_S ? next : now_ns() + NS_PER_S);
    }
}
