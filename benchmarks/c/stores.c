/* The delay stores alone: C twins of the drivers in parts/stores.py. */
#include "twin.h"

struct drive {
	i64 store, pool, table, random;
	i64 clock_ns, step_ns, owd_ns, jitter_ns;
	i64 departed;
	u64 checksum;
};

#define BURST 64
#define LENGTH 1000

static inline i64 enter(struct pool *pool, char *table, i64 time_ns)
{
	i64 handle = take_frame(pool);
	struct packet *packet = packet_line(table, handle);
	packet->arrived_ns = time_ns;
	packet->length = LENGTH;
	return handle;
}

static inline void leave(struct drive *drive, struct pool *pool, char *table, i64 handle, i64 time_ns)
{
	drive->departed++;
	i64 spent_ns = time_ns - packet_line(table, handle)->arrived_ns;
	drive->checksum += (u64)drive->departed * (u64)(spent_ns + handle);
	give_frame(pool, handle);
}

EXPORT i64 drive_fifo(struct drive *drive, i64 bursts)
{
	struct fifo *fifo = (struct fifo *)drive->store;
	struct pool *pool = (struct pool *)drive->pool;
	char *table = (char *)drive->table;
	i64 step_ns = drive->step_ns, owd_ns = drive->owd_ns, now_ns = drive->clock_ns;
	for (i64 burst = 0; burst < bursts; burst++) {
		now_ns += BURST * step_ns;
		while (head_time(fifo) <= now_ns) {
			i64 time_ns = first_time(fifo);
			i64 packet = head_packet(fifo);
			fifo->head++;
			leave(drive, pool, table, packet & NIL, time_ns);
		}
		for (i64 n = 0; n < BURST; n++) {
			i64 time_ns = now_ns - (BURST - 1 - n) * step_ns;
			i64 handle = enter(pool, table, time_ns);
			fifo_push(fifo, time_ns + owd_ns, handle, LENGTH);
		}
	}
	drive->clock_ns = now_ns;
	return drive->departed;
}

EXPORT i64 drive_wheel(struct drive *drive, i64 bursts)
{
	struct wheel *wheel = (struct wheel *)drive->store;
	struct pool *pool = (struct pool *)drive->pool;
	struct random *random = (struct random *)drive->random;
	char *table = (char *)drive->table;
	i64 step_ns = drive->step_ns, owd_ns = drive->owd_ns, now_ns = drive->clock_ns;
	for (i64 burst = 0; burst < bursts; burst++) {
		now_ns += BURST * step_ns;
		while (wheel_next_time(wheel) <= now_ns) {
			i64 handle = wheel_pop(wheel, table);
			leave(drive, pool, table, handle, packet_line(table, handle)->time_ns);
		}
		for (i64 n = 0; n < BURST; n++) {
			i64 time_ns = now_ns - (BURST - 1 - n) * step_ns;
			i64 handle = enter(pool, table, time_ns);
			i64 jitter_ns = (i64)((double)drive->jitter_ns * (2.0 * uniform(random) - 1.0));
			wheel_push(wheel, table, time_ns + owd_ns + jitter_ns, handle);
		}
	}
	drive->clock_ns = now_ns;
	return drive->departed;
}

EXPORT i64 store_sizes(i64 *sizes)
{
	sizes[0] = sizeof(struct packet);
	sizes[1] = sizeof(struct memory);
	sizes[2] = sizeof(struct pool);
	sizes[3] = sizeof(struct books);
	sizes[4] = sizeof(struct counters);
	sizes[5] = sizeof(struct random);
	sizes[6] = sizeof(struct fifo);
	sizes[7] = sizeof(struct wheel);
	sizes[8] = sizeof(struct drive);
	return 0;
}
