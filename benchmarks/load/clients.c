#define _GNU_SOURCE
#include "clients.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "loop.h"
#include "marker.h"
#include "reader.h"

/* Then the clients get to read, who would be processes of their own: so the delay is the proxy's. */
#define TOKENS_AT_ONCE 4

struct client {
    struct watched watched; /* first: the loop knows nothing else; fd -1: not connected */
    struct group *group;
    struct client *next_free; /* of an OPEN group */
    uint32_t id, sequence;
    bool busy, writing;
    bool ended; /* the stream's last token came */
    uint32_t markers; /* in this answer */
    enum problem problem; /* the answer's first; PROBLEMS: none */
    uint64_t due_ns;
    size_t sent_bytes;
    size_t start_size;
    char start[1536]; /* head and body up to the words */
    struct matcher matcher;
    struct reader reader;
};

static const char body_end[] = "\"}]}";
static struct client *clients;
static struct client *free_clients[MOST_GROUPS];
static uint32_t client_count, busy_count;
static struct sockaddr_in proxy;
static char request_path[256];
static char *words; /* as many as the largest body has, then body_end */
static size_t words_size;
static bool stopping;
static char buffer[1 << 18];

static void client_ready(struct watched *watched, uint32_t events);

static void prepare_words(void) {
    static const char some[] = "what will the weather be like in the mountains tomorrow and ";
    words_size = 0;
    for (int i = 0; i < group_count; i++)
        if (groups[i].body_bytes > words_size)
            words_size = groups[i].body_bytes;
    free(words);
    words = malloc(words_size + sizeof body_end);
    if (words == NULL)
        fail("malloc");
    for (size_t i = 0; i < words_size; i++)
        words[i] = some[i % (sizeof some - 1)];
    memcpy(words + words_size, body_end, sizeof body_end);
}

void clients_prepare(int port, const char *path) {
    proxy = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr = {htonl(INADDR_LOOPBACK)}};
    snprintf(request_path, sizeof request_path, "%s", path);
    prepare_words();
    client_count = groups[group_count - 1].first + groups[group_count - 1].size;
    clients = calloc(client_count, sizeof *clients);
    if (clients == NULL)
        fail("calloc");
    memset(free_clients, 0, sizeof free_clients);
    stopping = false;
    busy_count = 0;
    for (int g = 0; g < group_count; g++) {
        for (uint32_t i = 0; i < groups[g].size; i++) {
            struct client *client = &clients[groups[g].first + i];
            client->watched = (struct watched){-1, client_ready};
            client->group = &groups[g];
            client->id = groups[g].first + i;
            client->next_free = free_clients[g];
            free_clients[g] = client;
        }
    }
}

static void disconnect(struct client *client) {
    if (client->watched.fd >= 0)
        close(client->watched.fd);
    client->watched.fd = -1;
    client->writing = false;
}

static bool connect_client(struct client *client) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&proxy, sizeof proxy) != 0 && errno != EINPROGRESS) {
        close(fd);
        return false;
    }
    client->watched.fd = fd;
    loop_watch(&client->watched, EPOLLIN);
    return true;
}

static void write_start(struct client *client) {
    struct group *group = client->group;
    struct marker marker = {client->id, client->sequence,
                            (uint64_t)group->engine_us << 8 | (uint64_t)group->plan};
    char body[256];
    int size = snprintf(body, sizeof body,
                        "{\"model\":\"m\",\"max_tokens\":128,%s\"messages\":[{\"role\":\"user\","
                        "\"content\":\"",
                        group->plan == STREAM ? "\"stream\":true," : "");
    marker_write(body + size, &marker);
    size += MARKER_BYTES;
    int head = snprintf(client->start, sizeof client->start,
                        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        "%sContent-Length: %llu\r\n\r\n",
                        request_path, group->headers, (unsigned long long)group->body_bytes);
    memcpy(client->start + head, body, (size_t)size);
    client->start_size = (size_t)(head + size);
    client->sent_bytes = 0;
}

/* How many words make up the rest of a body. */
static size_t words_of(const struct client *client) {
    const char *body = strstr(client->start, "\r\n\r\n") + 4;
    size_t before = client->start_size - (size_t)(body - client->start);
    return client->group->body_bytes - before - (sizeof body_end - 1);
}

/* False if the connection broke. */
static bool write_request(struct client *client) {
    size_t tail = words_of(client) + sizeof body_end - 1, sent = client->sent_bytes;
    size_t start = sent < client->start_size ? client->start_size - sent : 0;
    size_t of_tail = sent < client->start_size ? 0 : sent - client->start_size;
    struct iovec parts[2] = {
        {client->start + sent, start},
        {words + words_size + sizeof body_end - 1 - tail + of_tail, tail - of_tail}};
    ssize_t written = writev(client->watched.fd, start > 0 ? parts : parts + 1, start > 0 ? 2 : 1);
    if (written < 0 && errno != EAGAIN)
        return false;
    if (written > 0)
        client->sent_bytes += (size_t)written;
    bool writing = client->sent_bytes < client->start_size + tail;
    if (writing != client->writing)
        loop_change(&client->watched, writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
    client->writing = writing;
    return true;
}

static void finish(struct client *client, enum problem problem);

static void begin(struct client *client, uint64_t due_ns) {
    client->busy = true;
    busy_count++;
    client->sequence++;
    client->due_ns = due_ns;
    client->markers = 0;
    client->ended = false;
    client->problem = PROBLEMS;
    client->matcher.held = 0;
    reader_start(&client->reader);
    write_start(client);
    if (client->watched.fd < 0 && !connect_client(client))
        finish(client, NOT_CONNECTED);
    else if (!write_request(client))
        finish(client, CUT);
}

/* The answer is here, whole or not. A closed client's next request is sent by clients_do_due after
 * a problem, so that a proxy that refuses everything can't keep this from returning. */
static void finish(struct client *client, enum problem problem) {
    struct group *group = client->group;
    client->busy = false;
    busy_count--;
    if (client->problem != PROBLEMS)
        problem = client->problem;
    if (problem != PROBLEMS)
        group->counts.problems[problem]++;
    else
        group->counts.answers++;
    if (problem == REFUSED)
        histogram_add(&group->refusals, now_ns() - client->due_ns);
    else if (problem == PROBLEMS && group->plan != STREAM)
        histogram_add(&group->delays, now_ns() - client->due_ns);
    if (client->reader.state != DONE || client->reader.closes || client->writing)
        disconnect(client);
    if (group->arrivals == CLOSED && problem == PROBLEMS && !stopping) {
        begin(client, now_ns());
    } else if (group->arrivals != ONCE) {
        client->next_free = free_clients[group - groups];
        free_clients[group - groups] = client;
    }
}

static void note(struct client *client, enum problem problem) {
    if (client->problem == PROBLEMS)
        client->problem = problem;
}

static void token_found(struct client *client, const struct marker *marker) {
    struct group *group = client->group;
    if (marker->client != client->id || marker->sequence != client->markers || client->ended) {
        note(client, WRONG_TOKEN);
        return;
    }
    if (marker->number == 0) {
        client->ended = true;
        return;
    }
    client->markers++;
    group->counts.tokens++;
    histogram_add(&group->delays, now_ns() - marker->number);
    if (group->tokens == LOCKSTEP && !stopping)
        engine_emit(client->id);
}

static void marker_found(void *context, const struct marker *marker) {
    struct client *client = context;
    if (client->group->plan == STREAM) {
        token_found(client, marker);
        return;
    }
    client->markers++;
    if (marker->client != client->id || marker->sequence != client->sequence)
        note(client, WRONG_ANSWER);
}

static void take_body(void *context, const char *data, size_t size) {
    struct client *client = context;
    matcher_feed(&client->matcher, data, size, marker_found, client);
}

static void judge(struct client *client) {
    int status = client->reader.status;
    if (status == 429 || status == 503 || status == 504)
        note(client, REFUSED);
    else if (status != 200)
        note(client, WRONG_STATUS);
    else if (client->group->plan == STREAM ? !client->ended : client->markers != 1)
        note(client, WRONG_ANSWER);
    finish(client, PROBLEMS);
}

static void client_ready(struct watched *watched, uint32_t events) {
    struct client *client = (struct client *)watched;
    if (events & EPOLLOUT && client->writing && !write_request(client)) {
        finish(client, CUT);
        return;
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t size = recv(watched->fd, buffer, sizeof buffer, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0 && !client->busy) {
        disconnect(client); /* an idle connection may end */
    } else if (size <= 0) {
        finish(client, CUT);
    } else if (!client->busy) {
        client->group->counts.problems[WRONG_ANSWER]++;
        disconnect(client);
    } else {
        size_t used = reader_feed(&client->reader, buffer, (size_t)size, take_body, client);
        if (client->reader.state == BROKEN || used < (size_t)size) {
            client->reader.state = BROKEN;
            finish(client, BROKEN_HTTP);
        } else if (client->reader.state == DONE) {
            judge(client);
        }
    }
}

static struct client *take_free(struct group *group) {
    struct client *client = free_clients[group - groups];
    if (client != NULL)
        free_clients[group - groups] = client->next_free;
    return client;
}

void clients_start(uint64_t now) {
    for (int g = 0; g < group_count; g++) {
        groups[g].next_request_ns = groups[g].next_token_ns = now;
        while (groups[g].arrivals != OPEN && free_clients[g] != NULL)
            begin(take_free(&groups[g]), now_ns());
    }
}

static uint64_t send_due(struct group *group, uint64_t now) {
    if (group->arrivals == ONCE)
        return UINT64_MAX;
    if (group->arrivals == CLOSED) { /* only those with a problem are free */
        for (uint32_t i = 0; i < group->size && free_clients[group - groups] != NULL; i++)
            begin(take_free(group), now);
        return UINT64_MAX;
    }
    while (group->next_request_ns <= now) {
        struct client *client = take_free(group);
        if (client != NULL)
            begin(client, group->next_request_ns);
        else
            group->counts.problems[NO_CLIENT]++;
        group->next_request_ns += (uint64_t)((double)NS_PER_S / group->requests_per_s);
    }
    return group->next_request_ns;
}

static uint64_t emit_due(struct group *group, uint64_t now) {
    if (group->plan != STREAM || group->tokens == LOCKSTEP)
        return UINT64_MAX;
    double step_ns = (double)NS_PER_S / group->tokens_per_s;
    for (int i = 0; i < TOKENS_AT_ONCE && group->next_token_ns <= now; i++) {
        engine_emit(group->first + group->next_stream);
        group->next_stream = (group->next_stream + 1) % group->size;
        if (group->tokens == SPREAD)
            group->next_token_ns += (uint64_t)(step_ns / group->size);
        else if (group->next_stream == 0)
            group->next_token_ns += (uint64_t)step_ns;
    }
    return group->next_token_ns;
}

uint64_t clients_do_due(uint64_t now) {
    uint64_t next = UINT64_MAX;
    for (int g = 0; g < group_count && !stopping; g++) {
        uint64_t request = send_due(&groups[g], now), token = emit_due(&groups[g], now);
        next = request < next ? request : next;
        next = token < next ? token : next;
    }
    return next;
}

void clients_stop(void) {
    stopping = true;
}

uint32_t clients_busy(void) {
    return busy_count;
}

void clients_close(void) {
    for (uint32_t i = 0; i < client_count; i++) {
        if (clients[i].busy)
            clients[i].group->counts.problems[NOT_FINISHED]++;
        disconnect(&clients[i]);
    }
    free(clients);
    clients = NULL;
    client_count = busy_count = 0;
}
