/* The other side of the proxy: an engine that answers like vLLM and costs next to nothing.
 *
 * What it does with a request stands in the request's marker (see marker.h): the number's lowest
 * byte is a plan, the rest is a time in microseconds for ANSWER_LATER.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#define MOST_CLIENTS 32768

enum plan { ANSWER, STREAM, HOLD, ANSWER_LATER };

struct engine_counts {
    uint64_t requests; /* complete ones */
    uint64_t running;  /* begun and not answered, now */
    uint64_t blocked;  /* tokens that could not be sent, since the proxy did not read */
};

void engine_listen(int port);

/* Sends the next token of that client's stream; false if it has none or it is blocked. */
bool engine_emit(uint32_t client);

/* Ends all streams and answers what is held; `open` again makes the engine as at the start. */
void engine_let_go(void);
void engine_open(void);

/* Answers what is due; returns when the next is. */
uint64_t engine_answer_due(uint64_t now);

struct engine_counts engine_statistics(void);

#endif
