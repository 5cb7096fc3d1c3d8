/* Keeps a proxy saturated from both sides, in one process and one loop.
 *
 * It is the engine and its clients at once. In mode "stream" a stream's next token is written when
 * the client has read the one before, so that nothing can be coalesced; in mode "plain" each client
 * sends its next request when it has the answer to the one before.
 *
 *   lockstep stream|plain CLIENTS
 *
 * Prints "engine PORT". Then reads lines: a port number starts the clients towards that port of
 * 127.0.0.1; "count" prints how many chunks or answers clients have read so far. Ends at the end
 * of its input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 4096, ROOM = 16384 };
enum kind { NOTHING, INPUT, LISTENER, ENGINE, CLIENT };

struct connection {
    enum kind kind;
    int number; /* of the client; of an engine's connection: whose request it has */
    size_t used;
    char data[ROOM];
};

static struct connection *table[MOST];
static int engine_of[MOST]; /* client number -> the engine's socket that serves it */
static int streaming, loop;
static unsigned long long counted;

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void put(int fd, const char *data, size_t size) {
    if (write(fd, data, size) != (ssize_t)size)
        fail("write");
}

static void watch(int fd, enum kind kind, int number) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    int one = 1;
    if (fd >= MOST || (table[fd] = calloc(1, sizeof **table)) == NULL)
        fail("too many connections");
    table[fd]->kind = kind;
    table[fd]->number = number;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll_ctl");
}

static void send_chunk(int fd, int first) {
    static const char event[] =
        "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\","
        "\"created\":1764000000,\"model\":\"lockstep\",\"choices\":[{\"index\":0,\"delta\":"
        "{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n";
    char out[1024];
    int size = snprintf(out, sizeof out, "%s%zx\r\n%s\r\n",
                        first ? "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                                "transfer-encoding: chunked\r\n\r\n"
                              : "",
                        sizeof event - 1, event);
    put(fd, out, (size_t)size);
}

static void send_answer(int fd) {
    static char out[2048];
    static int size;
    if (size == 0) {
        char body[1024], text[700];
        memset(text, 'x', sizeof text - 1);
        text[sizeof text - 1] = 0;
        int length = snprintf(body, sizeof body,
                              "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion\","
                              "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                              "\"%s\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":500,"
                              "\"total_tokens\":600,\"completion_tokens\":100}}",
                              text);
        size = snprintf(out, sizeof out,
                        "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
                        "content-type: application/json\r\n\r\n%s",
                        length, body);
    }
    put(fd, out, (size_t)size);
}

static void send_request(int fd, int number) {
    static char out[4096];
    char body[3000], text[1800];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = 0;
    int length = snprintf(body, sizeof body,
                          "{\"model\":\"lockstep\",\"user\":\"client-%d.\",\"max_tokens\":100,%s"
                          "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                          number, streaming ? "\"stream\":true," : "", text);
    int size = snprintf(out, sizeof out,
                        "POST /v1/chat/completions HTTP/1.1\r\nHost: proxy\r\n"
                        "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                        length, body);
    put(fd, out, (size_t)size);
}

/* The length of the whole message at the start of the buffer; 0: it is not all there. */
static size_t message(const struct connection *one) {
    const char *end = memmem(one->data, one->used, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    size_t size = (size_t)(end - one->data) + 4;
    const char *name = strcasestr(one->data, "\r\ncontent-length:");
    if (name != NULL && name < end)
        size += strtoul(name + 17, NULL, 10);
    return one->used >= size ? size : 0;
}

static void drop(struct connection *one, size_t size) {
    memmove(one->data, one->data + size, one->used - size + 1);
    one->used -= size;
}

static void on_engine(int fd, struct connection *one) {
    size_t size;
    while ((size = message(one)) > 0) {
        const char *user = strstr(one->data, "client-");
        if (strncmp(one->data, "GET ", 4) == 0 || user == NULL) {
            static const char healthy[] = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            put(fd, healthy, sizeof healthy - 1);
        } else if (streaming) {
            engine_of[atoi(user + 7)] = fd;
            send_chunk(fd, 1);
        } else {
            send_answer(fd);
        }
        drop(one, size);
    }
}

static void on_client(int fd, struct connection *one) {
    size_t size;
    if (!streaming) {
        while ((size = message(one)) > 0) {
            if (strncmp(one->data, "HTTP/1.1 200", 12) != 0) {
                fprintf(stderr, "not 200: %.300s\n", one->data);
                exit(2);
            }
            counted++;
            drop(one, size);
            send_request(fd, one->number);
        }
        return;
    }
    const char *end;
    while ((end = memmem(one->data, one->used, "}\n\n", 3)) != NULL) {
        counted++;
        drop(one, (size_t)(end - one->data) + 3);
        send_chunk(engine_of[one->number], 0);
    }
}

static void start_clients(int port, int clients) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int number = 0; number < clients; number++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&place, sizeof place) != 0)
            fail("connect");
        watch(fd, CLIENT, number);
        send_request(fd, number);
    }
}

static void on_input(struct connection *one, int clients) {
    char *end;
    while ((end = memchr(one->data, '\n', one->used)) != NULL) {
        *end = 0;
        if (strcmp(one->data, "count") == 0)
            printf("%llu\n", counted);
        else
            start_clients(atoi(one->data), clients);
        fflush(stdout);
        drop(one, (size_t)(end - one->data) + 1);
    }
}

static int listen_somewhere(void) {
    struct sockaddr_in place = {.sin_family = AF_INET};
    socklen_t size = sizeof place;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&place, sizeof place) != 0 || listen(fd, 4096) != 0)
        fail("listen");
    getsockname(fd, (struct sockaddr *)&place, &size);
    printf("engine %d\n", ntohs(place.sin_port));
    fflush(stdout);
    return fd;
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    streaming = strcmp(words[1], "stream") == 0;
    int clients = atoi(words[2]);
    loop = epoll_create1(0);
    watch(listen_somewhere(), LISTENER, 0);
    watch(0, INPUT, 0);
    for (;;) {
        struct epoll_event ready[256];
        int found = epoll_wait(loop, ready, 256, -1);
        for (int place = 0; place < found; place++) {
            int fd = ready[place].data.fd;
            struct connection *one = table[fd];
            if (one->kind == LISTENER) {
                int fresh = accept(fd, NULL, NULL);
                if (fresh >= 0)
                    watch(fresh, ENGINE, -1);
                continue;
            }
            ssize_t got = read(fd, one->data + one->used, ROOM - 1 - one->used);
            if (got <= 0) {
                if (one->kind == INPUT)
                    return 0;
                close(fd);
                free(one);
                table[fd] = NULL;
                continue;
            }
            one->used += (size_t)got;
            one->data[one->used] = 0;
            if (one->kind == INPUT)
                on_input(one, clients);
            else if (one->kind == ENGINE)
                on_engine(fd, one);
            else
                on_client(fd, one);
        }
    }
}
