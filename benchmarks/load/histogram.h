/* Delays from 1 us to minutes in buckets 1.6 % wide (64 to a power of two). */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS 64
#define HISTOGRAM_BUCKETS (40 * HISTOGRAM_STEPS)

struct histogram {
    uint64_t count;
    uint64_t highest_ns;
    uint32_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);

/* In microseconds; 0 if nothing was added. */
double histogram_quantile_us(const struct histogram *histogram, double quantile);

#endif
