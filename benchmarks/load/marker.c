#include "marker.h"

#include <stdbool.h>
#include <string.h>

static void write_hex(char *to, uint64_t value, int digits) {
    while (digits-- > 0) {
        to[digits] = "0123456789abcdef"[value & 15];
        value >>= 4;
    }
}

void marker_write(char *to, const struct marker *marker) {
    to[0] = to[1] = '@';
    write_hex(to + 2, marker->client, 6);
    to[8] = '.';
    write_hex(to + 9, marker->sequence, 8);
    to[17] = '.';
    write_hex(to + 18, marker->number, 16);
    to[34] = '@';
}

static bool read_hex(const char *from, int digits, uint64_t *value) {
    *value = 0;
    for (int i = 0; i < digits; i++) {
        char c = from[i];
        if (c >= '0' && c <= '9')
            *value = *value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *value = *value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    return true;
}

static bool marker_read(const char *text, struct marker *marker) {
    uint64_t client, sequence;
    if (text[1] != '@' || text[8] != '.' || text[17] != '.' || text[34] != '@' ||
        !read_hex(text + 2, 6, &client) || !read_hex(text + 9, 8, &sequence) ||
        !read_hex(text + 18, 16, &marker->number))
        return false;
    marker->client = (uint32_t)client;
    marker->sequence = (uint32_t)sequence;
    return true;
}

void matcher_feed(struct matcher *matcher, const char *data, size_t size,
                  void (*found)(void *context, const struct marker *marker), void *context) {
    const char *end = data + size;
    struct marker marker;
    while (data < end) {
        if (matcher->held == 0) {
            data = memchr(data, '@', (size_t)(end - data));
            if (data == NULL)
                return;
        }
        size_t piece = MARKER_BYTES - matcher->held;
        if (piece > (size_t)(end - data))
            piece = (size_t)(end - data);
        memcpy(matcher->text + matcher->held, data, piece);
        matcher->held += piece;
        data += piece;
        if (matcher->held < MARKER_BYTES)
            return;
        if (marker_read(matcher->text, &marker))
            found(context, &marker);
        matcher->held = 0;
    }
}
