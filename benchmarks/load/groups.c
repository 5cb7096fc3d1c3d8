#include "groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group groups[MOST_GROUPS];
int group_count;

const char *problem_name(enum problem problem) {
    static const char *const names[PROBLEMS] = {
        "refused", "wrong_status",  "wrong_answer", "wrong_token", "broken_http",
        "cut",     "not_connected", "not_finished", "no_client"};
    return names[problem];
}

/* The index of `word` in a list that ends with NULL; -1 if it is not there. */
static int choice(const char *word, const char *const *list) {
    for (int i = 0; list[i] != NULL; i++)
        if (strcmp(word, list[i]) == 0)
            return i;
    return -1;
}

/* Header lines come with spaces as "+" and line ends as "|". */
static void set_headers(struct group *group, const char *value) {
    size_t at = 0;
    for (; *value != '\0' && at + 3 < sizeof group->headers; value++) {
        if (*value == '|') {
            group->headers[at++] = '\r';
            group->headers[at++] = '\n';
        } else {
            group->headers[at++] = *value == '+' ? ' ' : *value;
        }
    }
    group->headers[at] = '\0';
}

static bool set(struct group *group, const char *name, const char *value) {
    static const char *const arrivals[] = {"closed", "open", "once", NULL};
    static const char *const plans[] = {"answer", "stream", "hold", "answer_later", NULL};
    static const char *const tokens[] = {"lockstep", "spread", "step", NULL};
    int chosen = 0;
    if (strcmp(name, "clients") == 0)
        group->size = (uint32_t)atoi(value);
    else if (strcmp(name, "arrivals") == 0)
        group->arrivals = (enum arrivals)(chosen = choice(value, arrivals));
    else if (strcmp(name, "plan") == 0)
        group->plan = (enum plan)(chosen = choice(value, plans));
    else if (strcmp(name, "tokens") == 0)
        group->tokens = (enum tokens)(chosen = choice(value, tokens));
    else if (strcmp(name, "requests_per_s") == 0)
        group->requests_per_s = atof(value);
    else if (strcmp(name, "tokens_per_s") == 0)
        group->tokens_per_s = atof(value);
    else if (strcmp(name, "engine_us") == 0)
        group->engine_us = (uint32_t)atoi(value);
    else if (strcmp(name, "body_bytes") == 0)
        group->body_bytes = strtoull(value, NULL, 10);
    else if (strcmp(name, "headers") == 0)
        set_headers(group, value);
    else
        return false;
    return chosen >= 0;
}

bool group_add(char *words) {
    if (group_count == MOST_GROUPS)
        return false;
    struct group *group = &groups[group_count];
    memset(group, 0, sizeof *group);
    group->body_bytes = 2048;
    if (group_count > 0)
        group->first = groups[group_count - 1].first + groups[group_count - 1].size;
    for (char *word = strtok(words, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        if (value == NULL)
            return false;
        *value = '\0';
        if (!set(group, word, value + 1))
            return false;
    }
    if (group->size == 0 || group->body_bytes < 256 || group->first + group->size > MOST_CLIENTS)
        return false;
    group_count++;
    return true;
}
