#define _GNU_SOURCE
#include "reader.h"

#include <stdlib.h>
#include <string.h>

void reader_start(struct reader *reader) {
    memset(reader, 0, offsetof(struct reader, head));
    reader->state = HEAD;
}

/* The value of a header, or NULL. Names are compared without regard to case. */
static const char *header(const struct reader *reader, const char *name) {
    size_t size = strlen(name);
    const char *line = reader->head;
    while ((line = strstr(line, "\r\n")) != NULL) {
        line += 2;
        if (strncasecmp(line, name, size) == 0 && line[size] == ':') {
            line += size + 1;
            while (*line == ' ')
                line++;
            return line;
        }
    }
    return NULL;
}

static void finish_head(struct reader *reader) {
    const char *length = header(reader, "content-length");
    const char *coding = header(reader, "transfer-encoding");
    const char *connection = header(reader, "connection");
    if (strncmp(reader->head, "HTTP/1.", 7) == 0)
        reader->status = atoi(reader->head + 9);
    reader->closes = connection != NULL && strncasecmp(connection, "close", 5) == 0;
    if (coding != NULL && strncasecmp(coding, "chunked", 7) == 0) {
        reader->state = CHUNK_SIZE;
    } else {
        reader->left_bytes = length == NULL ? 0 : strtoull(length, NULL, 10);
        reader->state = reader->left_bytes == 0 ? DONE : BY_LENGTH;
    }
}

static size_t feed_head(struct reader *reader, const char *data, size_t size) {
    size_t before = reader->head_bytes;
    size_t piece = size < LARGEST_HEAD_BYTES - before ? size : LARGEST_HEAD_BYTES - before;
    memcpy(reader->head + before, data, piece);
    size_t from = before < 3 ? 0 : before - 3;
    char *end = memmem(reader->head + from, before + piece - from, "\r\n\r\n", 4);
    if (end == NULL) {
        reader->head_bytes += piece;
        if (reader->head_bytes == LARGEST_HEAD_BYTES)
            reader->state = BROKEN;
        return piece;
    }
    end[2] = '\0'; /* the last line keeps its end, so that a search by lines stops there */
    reader->head_bytes = (size_t)(end - reader->head) + 4;
    finish_head(reader);
    return reader->head_bytes - before;
}

/* One byte of a chunk's size line ("fa;extension\r\n") or of a trailer line. */
static void feed_line(struct reader *reader, char c) {
    static const char digits[] = "0123456789abcdef";
    if (c == '\n') {
        if (reader->state == CHUNK_SIZE)
            reader->state = reader->left_bytes == 0 ? TRAILER : CHUNK_DATA;
        else if (reader->line_bytes == 0)
            reader->state = DONE;
        reader->line_bytes = 0;
        return;
    }
    if (c == '\r')
        return;
    reader->line_bytes++;
    if (reader->state == CHUNK_SIZE && reader->line_bytes <= 16) {
        const char *digit = memchr(digits, c | 0x20, 16);
        if (digit != NULL)
            reader->left_bytes = reader->left_bytes << 4 | (uint64_t)(digit - digits);
        else if (reader->line_bytes == 1)
            reader->state = BROKEN;
        else
            reader->line_bytes = 17; /* the rest is an extension */
    }
}

size_t reader_feed(struct reader *reader, const char *data, size_t size,
                   void (*body)(void *context, const char *data, size_t size), void *context) {
    const char *at = data, *end = data + size;
    while (at < end && reader->state != DONE && reader->state != BROKEN) {
        if (reader->state == HEAD) {
            at += feed_head(reader, at, (size_t)(end - at));
        } else if (reader->state == BY_LENGTH || reader->state == CHUNK_DATA) {
            size_t piece = (size_t)(end - at);
            if (piece > reader->left_bytes)
                piece = reader->left_bytes;
            body(context, at, piece);
            reader->body_bytes += piece;
            reader->left_bytes -= piece;
            at += piece;
            if (reader->left_bytes == 0)
                reader->state = reader->state == BY_LENGTH ? DONE : CHUNK_END;
        } else if (reader->state == CHUNK_END) {
            if (*at == '\n')
                reader->state = CHUNK_SIZE;
            else if (*at != '\r')
                reader->state = BROKEN;
            at++;
        } else {
            feed_line(reader, *at++);
        }
    }
    return (size_t)(at - data);
}
