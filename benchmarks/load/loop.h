/* One epoll loop for everything. */
#ifndef LOOP_H
#define LOOP_H

#include <stdint.h>
#include <sys/epoll.h>

/* The first member of whatever has a socket. */
struct watched {
    int fd;
    void (*ready)(struct watched *self, uint32_t events);
};

void loop_open(void);
void loop_watch(struct watched *watched, uint32_t events);
void loop_change(struct watched *watched, uint32_t events);

/* Handles what is ready; waits for it at most until then. */
void loop_once(uint64_t until_ns);

/* When something was last ready. */
uint64_t loop_active_ns(void);

/* Time spent on asking in vain without waiting: CPU time that was not needed. */
uint64_t loop_idle_ns(void);

_Noreturn void fail(const char *what);

#endif
