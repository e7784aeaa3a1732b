/* The stages loss, bottleneck with drop-tail, and delay, and the pipeline that they make: the twin of what
 * engine/source.py generates. Addresses of all records come in one struct, so that the memory can be xskit's own. */
#pragma once
#include "twin.h"

enum { LOSS = 1, QUEUE_FULL = 2 };

struct loss_parameters { i64 threshold; };

struct loss_state { i64 passed, dropped; };

struct loss {
	struct loss_state *state;
	struct loss_parameters *parameters;
	struct random *random;
};

struct bottleneck_parameters {
	i64 rate_bps;
	double inverse;
	i64 overhead, minimum, limit_packets, limit_bytes;
};

struct bottleneck_state {
	i64 packets, bytes, peak_packets, peak_bytes;
	i64 departure_ns, fraction, wire_bytes, busy_ns, idle_starts;
	i64 dropped;
	struct fifo *fifo;
};

struct bottleneck {
	struct bottleneck_state *state;
	struct bottleneck_parameters *parameters;
};

struct delay_parameters { i64 owd_ns, jitter_ns, distribution; };

struct delay_state {
	i64 packets, bytes, peak_packets, peak_bytes;
	i64 last_ns;
	struct fifo *fifo;
};

struct delay {
	struct delay_state *state;
	struct delay_parameters *parameters;
	struct random *random;
};

struct exit {
	struct fifo fifo;
	struct egress *egress;
	i64 egress_count;
};

struct pipe {
	char *table;
	struct pool *pool;
	struct memory *memory;
	struct exit *exits;
	i64 exit_count;
	struct counters *counters;
	i64 capacity_frames, parameters_bytes, watermark_ns, effective_ns, pending;
};

struct arrival { i64 time_ns, handle, length; };

struct pipeline {
	struct pipe *pipe;
	struct loss loss;
	struct bottleneck bottleneck;
	struct delay delay;
};

static inline void discard(struct pipe *pipe, i64 handle, i64 length, i64 cause)
{
	struct books *books = &pipe->counters->books;
	count_drop(books, cause, length);
	books->in_flight_frames -= give_packet(pipe->memory, handle);
}

static inline void leave(struct pipe *pipe, i64 time_ns, i64 handle, i64 length)
{
	struct exit *exit = pipe->exits;
	if (pipe->exit_count > 1)
		exit += packet_line(pipe->table, handle)->egress;
	fifo_push(&exit->fifo, time_ns, handle, length);
}

/* --- delay ----------------------------------------------------------------------------------------------------- */

static inline i64 delay_departure(struct delay *delay, i64 time_ns)
{
	i64 due = time_ns + delay->parameters->owd_ns;
	if (delay->parameters->distribution == 1)
		due += (i64)((double)delay->parameters->jitter_ns * (2.0 * uniform(delay->random) - 1.0));
	return max64(due, time_ns);
}

static inline void delay_push(struct delay *delay, i64 handle, i64 length, i64 time_ns)
{
	struct delay_state *state = delay->state;
	i64 due = max64(delay_departure(delay, time_ns), state->last_ns);
	state->last_ns = due;
	fifo_push(state->fifo, due, handle, length);
	state->packets++;
	state->bytes += length;
	state->peak_packets = max64(state->peak_packets, state->packets);
	state->peak_bytes = max64(state->peak_bytes, state->bytes);
}

static inline void delay_advance(struct pipeline *line, i64 until_ns)
{
	struct delay_state *state = line->delay.state;
	struct fifo *fifo = state->fifo;
	while (head_time(fifo) <= until_ns) {
		i64 due = first_time(fifo);
		i64 packet = head_packet(fifo);
		fifo->head++;
		state->packets--;
		state->bytes -= packet >> 32;
		leave(line->pipe, due, packet & NIL, packet >> 32);
	}
}

/* --- bottleneck ------------------------------------------------------------------------------------------------ */

static inline i64 wire_length(const struct bottleneck_parameters *server, i64 length)
{
	return max64(length, server->minimum) + server->overhead;
}

static inline void bottleneck_proceed(struct bottleneck *bottleneck, i64 wire_bytes)
{
	struct bottleneck_state *state = bottleneck->state;
	i64 rate_bps = bottleneck->parameters->rate_bps;
	if (rate_bps == 0)
		return;
	i64 spent = wire_bytes * 8000000000 + state->fraction;
	i64 whole_ns = spent * bottleneck->parameters->inverse;
	i64 rest = spent - whole_ns * rate_bps;
	if (rest >= rate_bps) {
		whole_ns++;
		rest -= rate_bps;
	}
	state->fraction = rest;
	state->departure_ns += whole_ns;
	state->busy_ns += whole_ns;
}

static inline void bottleneck_advance(struct pipeline *line, i64 until_ns)
{
	struct bottleneck *bottleneck = &line->bottleneck;
	struct bottleneck_state *state = bottleneck->state;
	struct fifo *fifo = state->fifo;
	while (state->packets != 0 && state->departure_ns <= until_ns) {
		i64 left_ns = state->departure_ns;
		i64 packet = head_packet(fifo);
		i64 length = packet >> 32;
		fifo->head++;
		state->packets--;
		state->bytes -= length;
		state->wire_bytes -= wire_length(bottleneck->parameters, length);
		if (state->packets != 0)
			bottleneck_proceed(bottleneck, wire_length(bottleneck->parameters, head_packet(fifo) >> 32));
		delay_push(&line->delay, packet & NIL, length, left_ns);
	}
}

static inline i64 bottleneck_push(struct bottleneck *bottleneck, i64 handle, i64 length, i64 time_ns)
{
	struct bottleneck_state *state = bottleneck->state;
	struct bottleneck_parameters *parameters = bottleneck->parameters;
	i64 wire_bytes = wire_length(parameters, length);
	if (state->packets == 0) {
		if (time_ns > state->departure_ns) {
			state->fraction = 0;
			state->departure_ns = time_ns;
		}
		state->idle_starts++;
		bottleneck_proceed(bottleneck, wire_bytes);
	} else if (state->packets + 1 > parameters->limit_packets ||
		   state->wire_bytes + wire_bytes > parameters->limit_bytes) {
		state->dropped++;
		return QUEUE_FULL;
	}
	fifo_push(state->fifo, time_ns, handle, length);
	state->packets++;
	state->bytes += length;
	state->wire_bytes += wire_bytes;
	state->peak_packets = max64(state->peak_packets, state->packets);
	state->peak_bytes = max64(state->peak_bytes, state->bytes);
	return PASS;
}

/* --- the pipeline ---------------------------------------------------------------------------------------------- */

static inline i64 loss_step(struct loss *loss)
{
	if (draw(loss->random) < loss->parameters->threshold) {
		loss->state->dropped++;
		return LOSS;
	}
	loss->state->passed++;
	return PASS;
}

static inline void pipeline_enter(struct pipeline *line, const struct arrival *arrival)
{
	i64 verdict = loss_step(&line->loss);
	if (verdict == PASS) {
		bottleneck_advance(line, arrival->time_ns);
		verdict = bottleneck_push(&line->bottleneck, arrival->handle, arrival->length, arrival->time_ns);
	}
	if (verdict != PASS)
		discard(line->pipe, arrival->handle, arrival->length, verdict);
}

/* Not inlined: xskit calls its pipeline by pointer, once a batch. No update is ever pending here, but it is looked at. */
static __attribute__((noinline, unused)) i64
pipeline_run(struct pipeline *line, const struct arrival *batch, i64 count, i64 until_ns)
{
	struct pipe *pipe = line->pipe;
	if (__atomic_load_n(&pipe->pending, __ATOMIC_ACQUIRE))
		__builtin_trap();
	for (i64 n = 0; n < count; n++)
		pipeline_enter(line, &batch[n]);
	bottleneck_advance(line, until_ns);
	delay_advance(line, until_ns);
	pipe->watermark_ns = max64(pipe->watermark_ns, until_ns);
	i64 next_ns = line->bottleneck.state->packets == 0 ? INFINITE_NS : line->bottleneck.state->departure_ns;
	return min64(next_ns, head_time(line->delay.state->fifo));
}
