/* The rings of an AF_XDP socket, the records of its data path and of the loop, and the histogram (xsk/path/rings.py,
 * receive.py, transmit.py; engine/records.py, histogram.py), by hand in C. */
#pragma once
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "stages.h"

#define BATCH 64
#define KICKS 4096
enum { MEMORY_FULL = 3, TX_REFUSED = 4, SUPER_PACKET = 6, TOO_MANY_FRAGMENTS = 7, EGRESS_MTU = 8 };

struct descriptor { u64 address; u32 length, options; };

struct ring {
	u32 *producer, *consumer, *flags;
	void *entries;
	i64 size, mask, local, remote;
};

struct receiver {
	struct memory *memory;
	struct pool *pool;
	struct ring *rx, *fill;
	i64 fd, stamped, obeys, busy_poll, target, filled, number, head, tail, broken;
	i64 packets, frames, bytes, strays, kicks, fill_fails;
};

struct transmitter {
	struct memory *memory;
	struct ring *tx, *completion;
	i64 fd, number, zero_copy, always, told_late, refusals, outstanding, outstanding_packets, packets, refused;
	i64 down, failure, progress_ns, retry_ns, kicks, strays;
};

struct egress {
	struct transmitter queue;
	i64 tagged_fd;
	void *message;
};

struct direction {
	struct receiver *ingress;
	i64 ingress_count;
	struct exit *exits;
	i64 exit_count;
	i64 run, block;
	struct counters *counters;
	i64 *lateness, *owd;
	char *table;
	struct pool *pool;
	struct memory *memory;
	i64 finish_checksums, capacity_frames, max_length, max_frames, tagged_length, wire_length, next_ns;
	struct arrival *rx_batch;
	i64 rotate, updates, owd_base_ns, coming_base_ns, since_ns, since_offered, since_lost;
	i64 late_limit_ns, earlier_limit_ns, coming_limit_ns, late, moved_late;
};

static inline i64 room(struct ring *ring, i64 wanted)
{
	i64 free = ring->size - (u32)(ring->local - ring->remote);
	if (free < wanted) {
		ring->remote = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
		free = ring->size - (u32)(ring->local - ring->remote);
	}
	return min64(free, wanted);
}

static inline void publish(struct ring *ring, i64 count)
{
	ring->local = (u32)(ring->local + count);
	__atomic_store_n(ring->producer, (u32)ring->local, __ATOMIC_RELEASE);
}

static inline i64 available(struct ring *ring, i64 wanted)
{
	i64 ready = (u32)(ring->remote - ring->local);
	if (ready < wanted) {
		ring->remote = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
		ready = (u32)(ring->remote - ring->local);
	}
	return min64(ready, wanted);
}

static inline void release(struct ring *ring, i64 count)
{
	ring->local = (u32)(ring->local + count);
	__atomic_store_n(ring->consumer, (u32)ring->local, __ATOMIC_RELEASE);
}

static inline i64 unconsumed(struct ring *ring)
{
	ring->remote = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
	return (u32)(ring->local - ring->remote);
}

static inline struct descriptor *descriptor(struct ring *ring, i64 number)
{
	return (struct descriptor *)ring->entries + ((ring->local + number) & ring->mask);
}

static inline u64 *address(struct ring *ring, i64 number)
{
	return (u64 *)ring->entries + ((ring->local + number) & ring->mask);
}

static inline i64 read_clock(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void add(i64 *histogram, i64 value)
{
	i64 bucket = max64(value, 0);
	if (bucket >= 64) {
		int shift = 58 - __builtin_clzll(bucket);
		bucket = ((i64)shift << 5) + (bucket >> shift);
	}
	histogram[bucket]++;
}

static inline void record_times(struct direction *line, i64 now_ns, i64 intended_ns, i64 arrived_ns)
{
	i64 limit_ns = line->late_limit_ns;
	add(line->lateness, now_ns - intended_ns);
	if (arrived_ns >= line->since_ns)
		add(line->owd, now_ns - arrived_ns - line->owd_base_ns);
	else
		limit_ns = line->earlier_limit_ns;
	line->late += now_ns - intended_ns > limit_ns;
}

/* The frame that an address in a ring means; -1 where it means none of this memory. */
static inline i64 frame_of(const struct memory *memory, u64 address)
{
	u64 frame = address >> memory->frame_shift;
	return frame < (u64)memory->frames ? (i64)frame : -1;
}

static inline void refill(struct receiver *receiver)
{
	struct pool *pool = receiver->pool;
	struct memory *memory = receiver->memory;
	struct ring *fill = receiver->fill;
	i64 wanted = min64(receiver->target - receiver->filled, pool->count), written = 0;
	if (wanted <= 0)
		return;
	i64 count = room(fill, wanted);
	if (count < wanted)
		receiver->fill_fails++;
	for (i64 n = 0; n < count; n++) {
		i64 frame = take_frame(pool);
		struct packet *line = packet_line(memory->table, frame);
		if (move(pool, line, frame, FREE, FILL)) {
			line->next = (u32)receiver->number;
			*address(fill, written++) = (u64)frame * memory->frame_bytes;
		}
	}
	receiver->filled += written;
	publish(fill, written);
}
