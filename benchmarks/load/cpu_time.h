/* CPU time of other processes, in nanoseconds, all threads together. */
#ifndef CPU_TIME_H
#define CPU_TIME_H

#include <stdint.h>

/* A thread that ended since is not in the sum; the programs measured keep theirs. */
uint64_t cpu_time_ns(const int *pids, int count);

#endif
