/* What a group of clients does, and what came of it. */
#ifndef GROUPS_H
#define GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "histogram.h"

#define MOST_GROUPS 4

/* When a client sends its next request. */
enum arrivals {
    CLOSED, /* as soon as the last one is answered */
    OPEN,   /* at a fixed rate over the group, by whichever client is free */
    ONCE    /* never: one request each */
};

/* When a stream's next token is made. */
enum tokens {
    LOCKSTEP, /* when the client has the last one, so that none can be joined */
    SPREAD,   /* at a fixed rate, one stream after the other */
    STEP      /* at a fixed rate, all streams together, as an engine's step does */
};

enum problem {
    REFUSED,      /* 429, 503, 504 */
    WRONG_STATUS, /* any other but 200 */
    WRONG_ANSWER, /* somebody else's, twice, or without its marker */
    WRONG_TOKEN,  /* lost, doubled or out of order */
    BROKEN_HTTP,
    CUT,          /* the connection ended inside an answer */
    NOT_CONNECTED,
    NOT_FINISHED, /* in the time after the end */
    NO_CLIENT,    /* free at the time of an OPEN arrival */
    PROBLEMS
};

struct counts {
    uint64_t answers;
    uint64_t tokens;
    uint64_t problems[PROBLEMS];
};

struct group {
    enum arrivals arrivals;
    double requests_per_s; /* OPEN */
    enum plan plan;
    uint32_t engine_us; /* ANSWER_LATER */
    enum tokens tokens;
    double tokens_per_s; /* of one stream; SPREAD and STEP */
    uint64_t body_bytes;
    char headers[512]; /* whole lines, with their ends */
    uint32_t first, size; /* its clients */
    uint64_t next_request_ns, next_token_ns;
    uint32_t next_stream;
    struct counts counts;
    struct histogram delays;   /* of answers, from when they were due; of tokens, one way */
    struct histogram refusals; /* how long a refusal took */
};

extern struct group groups[MOST_GROUPS];
extern int group_count;

const char *problem_name(enum problem problem);

/* "clients=64 arrivals=closed plan=stream ..."; false if a word is unknown. */
bool group_add(char *words);

#endif
