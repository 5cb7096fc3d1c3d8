#define _GNU_SOURCE
#include "loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "clock.h"

static int poller = -1;
static uint64_t active_ns, idle_ns;

void fail(const char *what) {
    perror(what);
    exit(1);
}

void loop_open(void) {
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        fail("epoll_create1");
    prctl(PR_SET_TIMERSLACK, 1ul); /* the default, 50 us, is as long as what is measured */
}

static void control(int operation, struct watched *watched, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = watched};
    if (epoll_ctl(poller, operation, watched->fd, &event) != 0)
        fail("epoll_ctl");
}

void loop_watch(struct watched *watched, uint32_t events) {
    control(EPOLL_CTL_ADD, watched, events);
}

void loop_change(struct watched *watched, uint32_t events) {
    control(EPOLL_CTL_MOD, watched, events);
}

void loop_once(uint64_t until_ns) {
    struct epoll_event events[256];
    uint64_t now = now_ns(), wait_ns = until_ns > now ? until_ns - now : 0;
    struct timespec timeout = {(time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S)};
    int count = epoll_pwait2(poller, events, 256, &timeout, NULL);
    if (count > 0)
        active_ns = now_ns();
    else if (wait_ns == 0)
        idle_ns += now_ns() - now;
    for (int i = 0; i < count; i++) {
        struct watched *watched = events[i].data.ptr;
        watched->ready(watched, events[i].events);
    }
}

uint64_t loop_active_ns(void) {
    return active_ns;
}

uint64_t loop_idle_ns(void) {
    return idle_ns;
}
