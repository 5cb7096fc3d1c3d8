#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answers.h"
#include "clock.h"
#include "loop.h"
#include "marker.h"
#include "reader.h"

#define MOST_UNSENT_BYTES (256u << 10)

struct connection {
    struct watched watched; /* first: the loop knows nothing else */
    struct connection *previous, *next; /* among those that wait for their answer */
    uint64_t due_ns;
    bool running;
    bool marked;
    struct marker request;
    uint32_t tokens;
    size_t unsent_size, unsent_room;
    char *unsent;
    struct matcher matcher;
    struct reader reader;
};

static struct connection waiting = {.previous = &waiting, .next = &waiting};
static struct connection *streams[MOST_CLIENTS];
static struct engine_counts counts;
static bool letting_go;
static char buffer[1 << 18];

static void remember_unsent(struct connection *connection, const char *data, size_t size) {
    if (connection->unsent_size + size > connection->unsent_room) {
        connection->unsent_room = (connection->unsent_size + size) * 2;
        connection->unsent = realloc(connection->unsent, connection->unsent_room);
        if (connection->unsent == NULL)
            fail("realloc");
    }
    if (connection->unsent_size == 0)
        loop_change(&connection->watched, EPOLLIN | EPOLLOUT);
    memcpy(connection->unsent + connection->unsent_size, data, size);
    connection->unsent_size += size;
}

/* An error is not handled here: the loop tells that the connection ended, and it is closed there. */
static void send_bytes(struct connection *connection, const char *data, size_t size) {
    ssize_t sent = 0;
    if (connection->unsent_size == 0) {
        sent = send(connection->watched.fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return;
        if (sent < 0)
            sent = 0;
    }
    if ((size_t)sent < size)
        remember_unsent(connection, data + sent, size - (size_t)sent);
}

static void send_rest(struct connection *connection) {
    ssize_t sent = send(connection->watched.fd, connection->unsent, connection->unsent_size,
                        MSG_NOSIGNAL);
    if (sent <= 0)
        return;
    connection->unsent_size -= (size_t)sent;
    memmove(connection->unsent, connection->unsent + sent, connection->unsent_size);
    if (connection->unsent_size == 0)
        loop_change(&connection->watched, EPOLLIN);
}

static void unlink_waiting(struct connection *connection) {
    if (connection->next == NULL)
        return;
    connection->previous->next = connection->next;
    connection->next->previous = connection->previous;
    connection->previous = connection->next = NULL;
}

static void link_waiting(struct connection *connection, uint64_t due_ns) {
    connection->due_ns = due_ns;
    connection->previous = waiting.previous;
    connection->next = &waiting;
    waiting.previous->next = connection;
    waiting.previous = connection;
}

static void finish(struct connection *connection) {
    if (connection->running)
        counts.running--;
    connection->running = false;
    unlink_waiting(connection);
    if (connection->marked && streams[connection->request.client] == connection)
        streams[connection->request.client] = NULL;
    connection->marked = false;
    connection->matcher.held = 0;
}

static void answer(struct connection *connection) {
    char text[LARGEST_ANSWER];
    struct marker marker = connection->request;
    marker.number = now_ns();
    send_bytes(connection, text, answer_whole(text, &marker));
    finish(connection);
}

static void emit(struct connection *connection) {
    char text[LARGEST_ANSWER];
    struct marker marker = {connection->request.client, connection->tokens++, now_ns()};
    send_bytes(connection, text, answer_token(text, &marker));
}

/* The last token's number is 0, which no time is: it says how many there were. */
static void end_stream(struct connection *connection) {
    char text[LARGEST_ANSWER];
    struct marker marker = {connection->request.client, connection->tokens, 0};
    send_bytes(connection, text, answer_end_of_stream(text, &marker));
    finish(connection);
}

static void begin_stream(struct connection *connection) {
    char text[LARGEST_ANSWER * 2];
    struct marker marker = {connection->request.client, connection->tokens++, now_ns()};
    size_t size = answer_head_of_stream(text);
    streams[connection->request.client] = connection;
    size += answer_token(text + size, &marker);
    send_bytes(connection, text, size);
    if (letting_go)
        end_stream(connection);
}

static void serve(struct connection *connection) {
    char text[LARGEST_ANSWER];
    if (!connection->marked) {
        send_bytes(connection, text, answer_page(text, connection->reader.head));
        return;
    }
    uint64_t number = connection->request.number;
    enum plan plan = (enum plan)(number & 0xff);
    counts.requests++;
    counts.running++;
    connection->running = true;
    connection->tokens = 0;
    if (plan == STREAM)
        begin_stream(connection);
    else if (plan == ANSWER || letting_go)
        answer(connection);
    else
        link_waiting(connection, plan == HOLD ? UINT64_MAX : now_ns() + (number >> 8) * 1000);
}

static void marker_found(void *context, const struct marker *marker) {
    struct connection *connection = context;
    if (connection->marked || marker->client >= MOST_CLIENTS)
        return;
    connection->marked = true;
    connection->request = *marker;
}

/* Only the start of a body is searched: of 10 MB the rest is words. */
static void take_body(void *context, const char *data, size_t size) {
    struct connection *connection = context;
    if (!connection->marked && connection->reader.body_bytes < 65536)
        matcher_feed(&connection->matcher, data, size, marker_found, connection);
}

static void close_connection(struct connection *connection) {
    finish(connection);
    close(connection->watched.fd);
    free(connection->unsent);
    free(connection);
}

static void connection_ready(struct watched *watched, uint32_t events) {
    struct connection *connection = (struct connection *)watched;
    if (events & EPOLLOUT && connection->unsent_size > 0)
        send_rest(connection);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t size = recv(watched->fd, buffer, sizeof buffer, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    size_t at = 0;
    while (size > 0 && at < (size_t)size && connection->reader.state != BROKEN) {
        at += reader_feed(&connection->reader, buffer + at, (size_t)size - at, take_body,
                          connection);
        if (connection->reader.state == DONE) {
            serve(connection);
            reader_start(&connection->reader);
        }
    }
    if (size <= 0 || connection->reader.state == BROKEN)
        close_connection(connection);
}

static void listener_ready(struct watched *watched, uint32_t events) {
    int fd, one = 1;
    (void)events;
    while ((fd = accept4(watched->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        if (connection == NULL)
            fail("calloc");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        connection->watched = (struct watched){fd, connection_ready};
        reader_start(&connection->reader);
        loop_watch(&connection->watched, EPOLLIN);
    }
}

void engine_listen(int port) {
    static struct watched listener;
    int one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    answers_prepare();
    listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    listener.ready = listener_ready;
    setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener.fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener.fd, 4096) != 0)
        fail("the engine can't listen");
    loop_watch(&listener, EPOLLIN);
}

bool engine_emit(uint32_t client) {
    struct connection *connection = streams[client];
    if (connection == NULL)
        return false;
    if (connection->unsent_size > MOST_UNSENT_BYTES) {
        counts.blocked++;
        return false;
    }
    emit(connection);
    return true;
}

void engine_let_go(void) {
    letting_go = true;
    for (uint32_t client = 0; client < MOST_CLIENTS; client++)
        if (streams[client] != NULL)
            end_stream(streams[client]);
    while (waiting.next != &waiting)
        answer(waiting.next);
}

void engine_open(void) {
    letting_go = false;
    counts.requests = counts.blocked = 0;
}

/* Those with the same time to wait are in order; held ones are due never and must not mix. */
uint64_t engine_answer_due(uint64_t now) {
    while (waiting.next != &waiting && waiting.next->due_ns <= now)
        answer(waiting.next);
    return waiting.next == &waiting ? UINT64_MAX : waiting.next->due_ns;
}

struct engine_counts engine_statistics(void) {
    return counts;
}
