#include "answers.h"

#include <stdio.h>
#include <string.h>

#define ID "chatcmpl-6b0f8f2d4c7e4e0c9d0a5f3b1e2d4c6a"
#define WHOLE_BYTES 1024

/* Written once, with a hole for the marker. */
struct template {
    size_t size;
    size_t hole;
    char text[LARGEST_ANSWER];
};

static struct template token, whole;

static void cut_hole(struct template *template) {
    template->size = strlen(template->text);
    template->hole = (size_t)(strstr(template->text, "#####") - template->text);
}

/* An event of exactly TOKEN_BYTES with room for a marker, as one HTTP chunk. */
static void prepare_token(void) {
    static const char event[] = "data: {\"id\":\"" ID "%.*s\",\"object\":\"chat.completion.chunk\","
                                "\"created\":1764550000,\"model\":\"m\",\"choices\":[{\"index\":0,"
                                "\"delta\":{\"content\":\"%.*s\"},\"finish_reason\":null}]}\n\n";
    static const char zeros[] = "00000000000000000000000000000000000000000000000000000000000000";
    char hole[MARKER_BYTES];
    memset(hole, '#', sizeof hole);
    char text[LARGEST_ANSWER];
    int size = snprintf(text, sizeof text, event, 0, zeros, MARKER_BYTES, hole);
    snprintf(text, sizeof text, event, TOKEN_BYTES - size, zeros, MARKER_BYTES, hole);
    snprintf(token.text, sizeof token.text, "%zx\r\n%.*s\r\n", strlen(text), TOKEN_BYTES, text);
    cut_hole(&token);
}

static void prepare_whole(void) {
    static const char head[] = "HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\n"
                               "server: uvicorn\r\ncontent-length: %d\r\n"
                               "content-type: application/json\r\n\r\n";
    static const char body[] =
        "{\"id\":\"" ID "\",\"object\":\"chat.completion\",\"created\":1764550000,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%.*s%.*s\"},"
        "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":500,"
        "\"total_tokens\":628,\"completion_tokens\":128}}";
    char hole[MARKER_BYTES], words[WHOLE_BYTES];
    memset(hole, '#', sizeof hole);
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = " some words"[i % 11];
    int size = snprintf(NULL, 0, body, MARKER_BYTES, hole, 0, words);
    int before = snprintf(whole.text, sizeof whole.text, head, WHOLE_BYTES);
    snprintf(whole.text + before, sizeof whole.text - (size_t)before, body, MARKER_BYTES, hole,
             WHOLE_BYTES - size, words);
    cut_hole(&whole);
}

void answers_prepare(void) {
    prepare_token();
    prepare_whole();
}

static size_t fill(char *to, const struct template *template, const struct marker *marker) {
    memcpy(to, template->text, template->size);
    marker_write(to + template->hole, marker);
    return template->size;
}

size_t answer_token(char *to, const struct marker *marker) {
    return fill(to, &token, marker);
}

size_t answer_whole(char *to, const struct marker *marker) {
    return fill(to, &whole, marker);
}

size_t answer_head_of_stream(char *to) {
    static const char head[] = "HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\n"
                               "server: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "transfer-encoding: chunked\r\n\r\n";
    memcpy(to, head, sizeof head - 1);
    return sizeof head - 1;
}

size_t answer_end_of_stream(char *to, const struct marker *marker) {
    static const char *const events[] = {
        "data: {\"id\":\"" ID "\",\"object\":\"chat.completion.chunk\",\"created\":1764550000,"
        "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"id\":\"" ID "\",\"object\":\"chat.completion.chunk\",\"created\":1764550000,"
        "\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":500,\"total_tokens\":628,"
        "\"completion_tokens\":128}}\n\n",
        "data: [DONE]\n\n",
    };
    size_t size = answer_token(to, marker);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        size += (size_t)sprintf(to + size, "%zx\r\n%s\r\n", strlen(events[i]), events[i]);
    memcpy(to + size, "0\r\n\r\n", 5);
    return size + 5;
}

size_t answer_page(char *to, const char *request_line) {
    const char *body = "{}", *status = "404 Not Found", *type = "application/json";
    if (strstr(request_line, " /health") != NULL) {
        status = "200 OK";
    } else if (strstr(request_line, " /v1/models") != NULL) {
        status = "200 OK";
        body = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\","
               "\"created\":1764550000,\"owned_by\":\"vllm\",\"root\":\"m\",\"parent\":null,"
               "\"max_model_len\":131072}]}";
    } else if (strstr(request_line, " /metrics") != NULL) {
        status = "200 OK";
        type = "text/plain";
        body = "vllm:request_success_total{model_name=\"m\"} 0.0\n"
               "vllm:num_preemptions_total{model_name=\"m\"} 0.0\n"
               "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.1\n";
    } else if (strstr(request_line, " /version") != NULL) {
        status = "200 OK";
        body = "{\"version\":\"0.11.0\"}";
    }
    return (size_t)sprintf(to,
                           "HTTP/1.1 %s\r\ncontent-length: %zu\r\ncontent-type: %s\r\n\r\n%s",
                           status, strlen(body), type, body);
}
