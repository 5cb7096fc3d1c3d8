/* What is looked for in every request, answer and token: who, which one, and a number.
 *
 *     @@00002a.00000007.0000000a1b2c3d4e@      client 42, its 7th, number 0xa1b2c3d4e
 *
 * A marker is plain text inside a JSON string, so it survives proxies that parse and write JSON
 * anew. In a request the number says how the engine shall answer; in an answer it is the time of
 * sending. The matcher takes the text in any pieces.
 */
#ifndef MARKER_H
#define MARKER_H

#include <stddef.h>
#include <stdint.h>

#define MARKER_BYTES 35

struct marker {
    uint32_t client;
    uint32_t sequence;
    uint64_t number;
};

struct matcher {
    size_t held;
    char text[MARKER_BYTES];
};

/* Writes exactly MARKER_BYTES, no end sign. */
void marker_write(char *to, const struct marker *marker);

/* Calls `found` for each whole marker in the bytes seen so far. */
void matcher_feed(struct matcher *matcher, const char *data, size_t size,
                  void (*found)(void *context, const struct marker *marker), void *context);

#endif
