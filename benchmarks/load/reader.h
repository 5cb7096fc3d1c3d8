/* Reads HTTP/1.1 messages in any pieces: a head, then a body by length, by chunks or none.
 *
 * Strict where it matters for a comparison: a message that is cut, has a broken chunk or a head
 * that is too large is BROKEN, never a success.
 */
#ifndef READER_H
#define READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LARGEST_HEAD_BYTES 8192

enum reader_state { HEAD, BY_LENGTH, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, DONE, BROKEN };

struct reader {
    enum reader_state state;
    bool closes; /* "Connection: close" was said */
    int status;  /* of a response */
    uint64_t left_bytes;
    uint64_t body_bytes;
    size_t line_bytes; /* of a chunk's size or trailer line */
    size_t head_bytes;
    char head[LARGEST_HEAD_BYTES + 1];
};

void reader_start(struct reader *reader);

/* Takes bytes up to the end of the message; returns how many. `body` gets the decoded body. */
size_t reader_feed(struct reader *reader, const char *data, size_t size,
                   void (*body)(void *context, const char *data, size_t size), void *context);

#endif
