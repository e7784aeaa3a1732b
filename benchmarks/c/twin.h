/* The engine's records and stores, by hand in C: the same algorithms over the same memory layout.
 *
 * Every struct here has the fields of the Record of the same name in src/xskit, in the same order; twins.py compares
 * the sizes before anything runs. The memory itself is prepared by xskit's own Python code. */
#pragma once
#include <stdint.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

#define NIL 0xFFFFFFFFu
#define INFINITE_NS ((i64)1 << 62)
#define EMPTY ((i64)1 << 62)
#define PASS 0
#define EXPORT __attribute__((visibility("default")))

static inline i64 min64(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 max64(i64 a, i64 b) { return a > b ? a : b; }

/* --- packets, frames, books (xsk/path/lines.py, books.py, pool.py; engine/packets.py) -------------------------- */

/* Types of one byte that are no `char`: a store to one of those could change anything, so all would be read again. */
enum owner { FREE = 0, FILL = 1, HELD = 3, TX = 4 } __attribute__((packed));
enum state { LAST = 1, REFUSED = 2, SET = 4 } __attribute__((packed));

struct packet {
	i64 address, arrived_ns, time_ns;
	u32 length, span, next, fragment, number, flow, kind;
	u16 frames, home, transport;
	u8 network, protocol, copy, egress;
	enum state state;
	enum owner owner;
};

struct books {
	i64 received, received_bytes, sent, sent_bytes, in_flight, in_flight_bytes, in_flight_frames;
	i64 *drops;
};

struct counters {
	struct books books;
	i64 duplicated, duplicated_bytes, injected, injected_bytes;
	i64 peak_frames, clamped, clamped_ns, unstamped, marked, checksums, unfinished, updates, clock_ns;
};

struct pool;

struct memory {
	char *base;
	i64 frames, frame_bytes, frame_shift, unaligned;
	char *table;
	struct pool *pools;
	i64 shared, lock;
};

struct pool {
	u32 *frames;
	i64 count, capacity;
	struct memory *memory;
	struct books *books;
	i64 violations, violated, first;
};

static inline struct packet *packet_line(char *table, i64 handle) { return (struct packet *)(table + (handle << 6)); }

static inline struct pool *pool_of(struct memory *memory, const struct packet *line) { return &memory->pools[line->home]; }

/* The frame goes from one owner to another; false where it was elsewhere: that is counted, and nothing moves. */
static inline int move(struct pool *pool, struct packet *line, i64 frame, enum owner origin,
		       enum owner target)
{
	if (line->owner != origin) {
		if (pool->violations++ == 0)
			pool->violated = frame;
		return 0;
	}
	line->owner = target;
	return 1;
}

static inline void give_frame(struct pool *pool, i64 frame) { pool->frames[pool->count++] = (u32)frame; }

static inline i64 take_frame(struct pool *pool) { return pool->frames[--pool->count]; }

static inline i64 give_packet(struct memory *memory, i64 handle)
{
	i64 count = 0;
	while (handle != NIL) {
		struct packet *line = packet_line(memory->table, handle);
		struct pool *pool = pool_of(memory, line);
		i64 following = line->fragment;
		if (move(pool, line, handle, HELD, FREE))
			give_frame(pool, handle);
		handle = following;
		count++;
	}
	return count;
}

/* A frame's line begins to describe another packet. */
static inline void forget_packet(struct packet *line)
{
	line->fragment = NIL;
	line->number++;
	line->transport = 0;
	line->network = line->protocol = line->copy = line->egress = 0;
	line->state = 0;
}

static inline void count_drop(struct books *books, i64 cause, i64 length)
{
	books->drops[2 * cause]++;
	books->drops[2 * cause + 1] += length;
	books->in_flight--;
	books->in_flight_bytes -= length;
}

/* --- random streams: xoshiro256++ (engine/random.py) ----------------------------------------------------------- */

struct random { u64 s[4]; };

static inline u64 rotate_left(u64 x, int k) { return (x << k) | (x >> (64 - k)); }

static inline i64 draw(struct random *stream)
{
	u64 *s = stream->s;
	u64 result = rotate_left(s[0] + s[3], 23) + s[0];
	u64 shifted = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= shifted;
	s[3] = rotate_left(s[3], 45);
	return (i64)(result >> 11);
}

static inline double uniform(struct random *stream) { return ((double)(draw(stream) >> 1) + 0.5) * (1.0 / 4503599627370496.0); }

/* --- the FIFO (engine/fifo.py) --------------------------------------------------------------------------------- */

struct entry { i64 time_ns, packet; };

struct fifo {
	struct entry *entries;
	i64 mask, head, tail;
};

static inline void fifo_push(struct fifo *fifo, i64 time_ns, i64 handle, i64 length)
{
	struct entry *entry = &fifo->entries[fifo->tail & fifo->mask];
	entry->time_ns = time_ns;
	entry->packet = handle | (length << 32);
	fifo->tail++;
}

static inline i64 head_time(const struct fifo *fifo)
{
	return fifo->head == fifo->tail ? INFINITE_NS : fifo->entries[fifo->head & fifo->mask].time_ns;
}

static inline i64 first_time(const struct fifo *fifo) { return fifo->entries[fifo->head & fifo->mask].time_ns; }

static inline i64 head_packet(const struct fifo *fifo) { return fifo->entries[fifo->head & fifo->mask].packet; }

/* --- the timing wheel (engine/wheel.py) ------------------------------------------------------------------------ */

struct wheel {
	u32 *tails;
	u64 *bitmap, *summary;
	i64 mask, shift, first, now, count;
};

static inline void wheel_push(struct wheel *wheel, char *table, i64 time_ns, i64 handle)
{
	i64 bucket = max64(time_ns >> wheel->shift, wheel->now);
	if (wheel->count == 0) {
		wheel->first = bucket;
	} else {
		bucket = min64(bucket, min64(wheel->first, bucket) + wheel->mask);
		wheel->first = min64(wheel->first, bucket);
	}
	i64 index = bucket & wheel->mask;
	struct packet *packet = packet_line(table, handle);
	packet->time_ns = time_ns;
	u64 bit = (u64)1 << (index & 63);
	if (wheel->bitmap[index >> 6] & bit) {
		struct packet *last = packet_line(table, wheel->tails[index]);
		packet->next = last->next;
		last->next = (u32)handle;
	} else {
		packet->next = (u32)handle;
		wheel->bitmap[index >> 6] |= bit;
		wheel->summary[index >> 12] |= (u64)1 << ((index >> 6) & 63);
	}
	wheel->tails[index] = (u32)handle;
	wheel->count++;
}

static inline i64 wheel_next_time(const struct wheel *wheel)
{
	return wheel->count == 0 ? INFINITE_NS : (wheel->first + 1) << wheel->shift;
}

static inline i64 wheel_following(const struct wheel *wheel, i64 bucket)
{
	i64 index = bucket & wheel->mask;
	u64 word = wheel->bitmap[index >> 6] & (~(u64)0 << (index & 63));
	if (word)
		return bucket - (index & 63) + __builtin_ctzll(word);
	i64 words = (wheel->mask + 1) >> 6;
	i64 position = (index >> 6) + 1;
	if (position == words)
		position = 0;
	u64 chunk = wheel->summary[position >> 6] & (~(u64)0 << (position & 63));
	while (chunk == 0) {
		position = ((position >> 6) + 1) << 6;
		if (position >= words)
			position = 0;
		chunk = wheel->summary[position >> 6];
	}
	position = (position & ~(i64)63) + __builtin_ctzll(chunk);
	i64 found = (position << 6) + __builtin_ctzll(wheel->bitmap[position]);
	return bucket + ((found - index) & wheel->mask);
}

static inline i64 wheel_pop(struct wheel *wheel, char *table)
{
	i64 index = wheel->first & wheel->mask;
	i64 tail = wheel->tails[index];
	struct packet *last = packet_line(table, tail);
	i64 handle = last->next;
	wheel->count--;
	wheel->now = wheel->first;
	if (handle != tail) {
		last->next = packet_line(table, handle)->next;
		return handle;
	}
	wheel->bitmap[index >> 6] &= ~((u64)1 << (index & 63));
	if (wheel->bitmap[index >> 6] == 0)
		wheel->summary[index >> 12] &= ~((u64)1 << ((index >> 6) & 63));
	wheel->first = wheel->count > 0 ? wheel_following(wheel, wheel->first + 1) : EMPTY;
	return handle;
}
