/* The engine's bytes: a chunk of a stream, its end, an answer of 1 KB, and small pages. */
#ifndef ANSWERS_H
#define ANSWERS_H

#include <stddef.h>

#include "marker.h"

#define TOKEN_BYTES 250
#define LARGEST_ANSWER 2048

void answers_prepare(void);

/* Each returns how many bytes it wrote to `to`, which has room for LARGEST_ANSWER. */
size_t answer_head_of_stream(char *to);
size_t answer_token(char *to, const struct marker *marker);
size_t answer_end_of_stream(char *to, const struct marker *marker);
size_t answer_whole(char *to, const struct marker *marker);
size_t answer_page(char *to, const char *request_line);

#endif
