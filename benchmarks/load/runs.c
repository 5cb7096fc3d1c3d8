#define _GNU_SOURCE
#include "runs.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clients.h"
#include "clock.h"
#include "cpu_time.h"
#include "engine.h"
#include "groups.h"
#include "loop.h"

#define MOST_PIDS 64
#define STILL_NS (NS_PER_S * 3 / 2)

enum phase { IDLE, WARMING, SETTLING, HOLDING, MEASURING, ENDING };

static struct {
    enum phase phase;
    int port, pids[MOST_PIDS], pid_count;
    char path[256];
    double warm_s, window_s, end_s;
    bool hold, awake;
    uint64_t phase_ends_ns, window_began_ns, window_ns, cpu_ns, own_cpu_ns;
    uint64_t answers[MOST_GROUPS], tokens[MOST_GROUPS];
    struct histogram delays[MOST_GROUPS], refusals[MOST_GROUPS];
} run;

static void set_pids(char *list) {
    run.pid_count = 0;
    for (char *at = list; *at != '\0' && run.pid_count < MOST_PIDS; at += *at == ',')
        run.pids[run.pid_count++] = (int)strtol(at, &at, 10);
}

static bool set(const char *name, char *value) {
    if (strcmp(name, "port") == 0)
        run.port = atoi(value);
    else if (strcmp(name, "path") == 0)
        snprintf(run.path, sizeof run.path, "%s", value);
    else if (strcmp(name, "warm_s") == 0)
        run.warm_s = atof(value);
    else if (strcmp(name, "window_s") == 0)
        run.window_s = atof(value);
    else if (strcmp(name, "end_s") == 0)
        run.end_s = atof(value);
    else if (strcmp(name, "hold") == 0)
        run.hold = atoi(value) != 0;
    else if (strcmp(name, "awake") == 0)
        run.awake = atoi(value) != 0;
    else if (strcmp(name, "pids") == 0)
        set_pids(value);
    else
        return false;
    return true;
}

static uint64_t after(double seconds) {
    return now_ns() + (uint64_t)(seconds * (double)NS_PER_S);
}

bool run_start(char *words) {
    memset(&run, 0, sizeof run);
    run.end_s = 10;
    snprintf(run.path, sizeof run.path, "/v1/chat/completions");
    for (char *word = strtok(words, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        if (value == NULL)
            return false;
        *value = '\0';
        if (!set(word, value + 1))
            return false;
    }
    if (run.port == 0 || group_count == 0)
        return false;
    engine_open();
    clients_prepare(run.port, run.path);
    run.phase = run.hold ? SETTLING : WARMING;
    run.phase_ends_ns = after(run.hold ? 1.5 : run.warm_s);
    clients_start(now_ns());
    return true;
}

static uint64_t own_cpu_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000 - loop_idle_ns();
}

static void begin_window(void) {
    for (int g = 0; g < group_count; g++) {
        run.answers[g] = groups[g].counts.answers;
        run.tokens[g] = groups[g].counts.tokens;
        memset(&groups[g].delays, 0, sizeof groups[g].delays);
        memset(&groups[g].refusals, 0, sizeof groups[g].refusals);
    }
    run.cpu_ns = cpu_time_ns(run.pids, run.pid_count);
    run.own_cpu_ns = own_cpu_ns();
    run.window_began_ns = now_ns();
}

static void end_window(void) {
    run.window_ns = now_ns() - run.window_began_ns;
    run.own_cpu_ns = own_cpu_ns() - run.own_cpu_ns;
    run.cpu_ns = cpu_time_ns(run.pids, run.pid_count) - run.cpu_ns;
    for (int g = 0; g < group_count; g++) {
        run.answers[g] = groups[g].counts.answers - run.answers[g];
        run.tokens[g] = groups[g].counts.tokens - run.tokens[g];
        run.delays[g] = groups[g].delays;
        run.refusals[g] = groups[g].refusals;
    }
}

static void report_delays(const char *name, const struct histogram *delays) {
    printf(",\"%s\":{\"count\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}", name,
           (unsigned long long)delays->count, histogram_quantile_us(delays, 0.5),
           histogram_quantile_us(delays, 0.99), (double)delays->highest_ns / 1000);
}

/* Answers and tokens in the window; problems, and all answers, over the whole run. */
static void report_group(int g) {
    const struct group *group = &groups[g];
    printf("%s{\"answers\":%llu,\"tokens\":%llu,\"all_answers\":%llu,\"problems\":{",
           g == 0 ? "" : ",", (unsigned long long)run.answers[g],
           (unsigned long long)run.tokens[g], (unsigned long long)group->counts.answers);
    const char *separator = "";
    for (int p = 0; p < PROBLEMS; p++) {
        if (group->counts.problems[p] == 0)
            continue;
        printf("%s\"%s\":%llu", separator, problem_name((enum problem)p),
               (unsigned long long)group->counts.problems[p]);
        separator = ",";
    }
    printf("}");
    report_delays("delays", &run.delays[g]);
    report_delays("refusals", &run.refusals[g]);
    printf("}");
}

static void report(void) {
    printf("{\"window_s\":%.6f,\"cpu_s\":%.6f,\"load_cpu_s\":%.6f,\"blocked_tokens\":%llu,"
           "\"groups\":[",
           (double)run.window_ns / 1e9, (double)run.cpu_ns / 1e9, (double)run.own_cpu_ns / 1e9,
           (unsigned long long)engine_statistics().blocked);
    for (int g = 0; g < group_count; g++)
        report_group(g);
    printf("]}\n");
    fflush(stdout);
}

static void begin_ending(void) {
    end_window();
    clients_stop();
    engine_let_go();
    run.phase = ENDING;
    run.phase_ends_ns = after(run.end_s);
}

static void end_run(void) {
    clients_close();
    report();
    group_count = 0;
    run.phase = IDLE;
}

/* A hold has begun when nothing moved for a while: what was to arrive has arrived. */
static void settle(uint64_t now) {
    if (now < loop_active_ns() + STILL_NS) {
        run.phase_ends_ns = loop_active_ns() + STILL_NS;
        return;
    }
    begin_window();
    run.phase = HOLDING;
    run.phase_ends_ns = UINT64_MAX;
    printf("{\"in_engine\":%llu,\"in_all\":%u}\n",
           (unsigned long long)engine_statistics().running, clients_busy());
    fflush(stdout);
}

void run_release(void) {
    if (run.phase == HOLDING)
        begin_ending();
}

static void next_phase(uint64_t now) {
    if (run.phase == WARMING) {
        begin_window();
        run.phase = MEASURING;
        run.phase_ends_ns = after(run.window_s);
    } else if (run.phase == SETTLING) {
        settle(now);
    } else if (run.phase == MEASURING) {
        begin_ending();
    } else if (run.phase == ENDING) {
        end_run();
    }
}

unsigned long long run_do_due(void) {
    uint64_t now = now_ns();
    if (run.phase == IDLE)
        return UINT64_MAX;
    if (now >= run.phase_ends_ns || (run.phase == ENDING && clients_busy() == 0)) {
        next_phase(now);
        return 0;
    }
    uint64_t sent = clients_do_due(now), answered = engine_answer_due(now);
    uint64_t next = sent < answered ? sent : answered;
    if (run.awake)
        return 0;
    return next < run.phase_ends_ns ? next : run.phase_ends_ns;
}
