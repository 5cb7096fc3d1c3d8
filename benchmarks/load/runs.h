/* One run of all groups: warm up, measure, end, report. */
#ifndef RUNS_H
#define RUNS_H

#include <stdbool.h>

/* "port=8080 path=/v1/chat/completions warm_s=0.5 window_s=2 pids=12,13"; false if a word is
 * unknown. With awake=1 the program never sleeps, so that the proxy's writes need not wake it up on
 * another core, which costs a virtual machine more than all else. With hold=1 the window begins when nothing moves any more, and ends when run_release is
 * called: in it one can look at how much memory the proxy takes. Prints one line of JSON when the
 * window of a hold begins, and one at the end of each run; then the groups are gone. */
bool run_start(char *words);

void run_release(void);

/* Does what is due; returns when the next is. */
unsigned long long run_do_due(void);

#endif
