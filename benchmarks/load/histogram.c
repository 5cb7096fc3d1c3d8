#include "histogram.h"

/* Below 64 ns the value itself, then 64 buckets for each power of two. */
static uint32_t bucket_of(uint64_t ns) {
    if (ns < HISTOGRAM_STEPS)
        return (uint32_t)ns;
    int shift = 57 - __builtin_clzll(ns);
    uint32_t bucket = (uint32_t)(shift + 1) * HISTOGRAM_STEPS +
                      (uint32_t)(ns >> shift) - HISTOGRAM_STEPS;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static double middle_ns(uint32_t bucket) {
    if (bucket < HISTOGRAM_STEPS)
        return bucket;
    uint32_t shift = bucket / HISTOGRAM_STEPS - 1;
    uint64_t low = (uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << shift;
    return (double)low + (double)(1ull << shift) / 2;
}

void histogram_add(struct histogram *histogram, uint64_t ns) {
    histogram->count++;
    if (ns > histogram->highest_ns)
        histogram->highest_ns = ns;
    histogram->buckets[bucket_of(ns)]++;
}

double histogram_quantile_us(const struct histogram *histogram, double quantile) {
    uint64_t wanted = (uint64_t)(quantile * (double)histogram->count), seen = 0;
    for (uint32_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen > wanted)
            return middle_ns(bucket) / 1000;
    }
    return (double)histogram->highest_ns / 1000;
}
