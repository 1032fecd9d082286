/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

/*
 * meter SECONDS spins on the monotonic clock, and prints what kept it from doing so:
 *
 *   gap NANOSECONDS COUNT      gaps of more than 10 us between two looks at the clock, by the
 *                              upper bound of their class; a class is an eighth of a power of two
 *   largest NANOSECONDS
 *   lost NANOSECONDS           all gaps, added up
 *   spun NANOSECONDS           how long it has measured
 *   involuntary COUNT          involuntary context switches of the process (getrusage)
 *   cpu NUMBER                 where it ran last
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define LEAST 10000 /* ns: shorter gaps are the clock's own */
#define PARTS 8     /* classes of a power of two */
#define CLASSES (64 * PARTS)

static uint64_t counts[CLASSES];

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int class_of(uint64_t gap) {
	int power = 63 - __builtin_clzll(gap);
	return power * PARTS + (int)((gap - (1ULL << power)) / ((1ULL << power) / PARTS));
}

static uint64_t bound_of(int class) {
	int power = class / PARTS;
	return (1ULL << power) + (uint64_t)(class % PARTS + 1) * ((1ULL << power) / PARTS);
}

static long involuntary(void) {
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nivcsw;
}

int main(int argc, char **argv) {
	double seconds = argc == 2 ? atof(argv[1]) : 0;
	if (seconds <= 0) {
		fprintf(stderr, "usage: meter SECONDS\n");
		return 2;
	}
	mlockall(MCL_CURRENT | MCL_FUTURE); /* where that is allowed; a page fault is no noise */
	uint64_t largest = 0, lost = 0;
	long before = involuntary();
	uint64_t begin = now(), last = begin, end = begin + (uint64_t)(seconds * 1e9);
	while (last < end) {
		uint64_t next = now(), gap = next - last;
		if (gap > LEAST) {
			counts[class_of(gap)]++;
			lost += gap;
			if (gap > largest)
				largest = gap;
		}
		last = next;
	}
	long switches = involuntary() - before;
	for (int i = 0; i < CLASSES; i++)
		if (counts[i] > 0)
			printf("gap %llu %llu\n", (unsigned long long)bound_of(i), (unsigned long long)counts[i]);
	printf("largest %llu\nlost %llu\nspun %llu\ninvoluntary %ld\ncpu %d\n", (unsigned long long)largest,
	       (unsigned long long)lost, (unsigned long long)(last - begin), switches, sched_getcpu());
	return 0;
}
