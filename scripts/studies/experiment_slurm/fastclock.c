/* A faster wall clock for the programs that are started with it (LD_PRELOAD).
 *
 * wall = base + (real - base) * speed, the same line for every process that is given the same
 * FASTCLOCK_BASE (Unix seconds) and FASTCLOCK_SPEED. Waits that end at a wall time end when the
 * faster clock gets there, but not sooner than FASTCLOCK_WAITS real seconds from now (for Slurm's
 * daemons; without it they are left alone, because Python waits by the monotonic clock). Sleeps,
 * the monotonic clock, poll and select stay as they are, so that networks keep real time-outs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_cond)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_lock)(pthread_mutex_t *, const struct timespec *);
static int (*real_sem)(sem_t *, const struct timespec *);
static long long base_ns;
static double speed = 1.0, waits;

static double number(const char *name, double otherwise)
{
	const char *text = getenv(name);
	return text ? strtod(text, NULL) : otherwise;
}

__attribute__((constructor)) static void begin(void)
{
	real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	real_cond = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	real_lock = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
	real_sem = dlsym(RTLD_NEXT, "sem_timedwait");
	base_ns = (long long)(number("FASTCLOCK_BASE", 0) * 1e9);
	speed = number("FASTCLOCK_SPEED", 1.0);
	waits = number("FASTCLOCK_WAITS", 0);
}

static long long ns_of(const struct timespec *t)
{
	return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static struct timespec spec_of(long long ns)
{
	struct timespec t = { ns / 1000000000LL, ns % 1000000000LL };
	return t;
}

static struct timespec faster(void)
{
	struct timespec now;
	real_gettime(CLOCK_REALTIME, &now);
	return spec_of(base_ns + (long long)((ns_of(&now) - base_ns) * speed));
}

static struct timespec slower(const struct timespec *until)
{
	struct timespec now;
	long long then = base_ns + (long long)((ns_of(until) - base_ns) / speed), soonest;
	if (!waits)
		return *until;
	real_gettime(CLOCK_REALTIME, &now);
	/* backfill's naps of half a second stay as short as the clock makes them */
	soonest = then - ns_of(&now) < 1000000000LL / speed ? then : ns_of(&now) + (long long)(waits * 1e9);
	return spec_of(then > soonest ? then : soonest);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	if (!real_gettime)
		begin();
	if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
		return real_gettime(clock, t);
	*t = faster();
	return 0;
}

time_t time(time_t *t)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict lock,
			   const struct timespec *restrict until)
{
	struct timespec real = slower(until);
	return real_cond(cond, lock, &real);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict lock, const struct timespec *restrict until)
{
	struct timespec real = slower(until);
	return real_lock(lock, &real);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until)
{
	struct timespec real = slower(until);
	return real_sem(sem, &real);
}
