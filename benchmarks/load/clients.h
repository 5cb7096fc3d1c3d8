/* The clients of all groups: they send, read, check every answer and count every token. */
#ifndef CLIENTS_H
#define CLIENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "groups.h"

/* Opens nothing yet; `path` and `port` are the proxy's. */
void clients_prepare(int port, const char *path);

/* Begins what is to be begun at once. */
void clients_start(uint64_t now);

/* Sends and emits what is due; returns when the next is. */
uint64_t clients_do_due(uint64_t now);

/* No new requests and tokens from now on. */
void clients_stop(void);

/* How many requests are without their whole answer. */
uint32_t clients_busy(void);

/* Counts those as NOT_FINISHED and closes everything. */
void clients_close(void);

#endif
