/* A whole pipeline, loss + bottleneck + delay, in virtual time: the C twin of the driver in parts/pipeline.py. */
#include "stages.h"

struct drive {
	i64 run, block, batch;
	i64 clock_ns, step_ns;
	u64 checksum;
};

#define BURST 64
#define GROUP 8
#define LENGTH 1000

static inline void feed(struct pipeline *line, struct arrival *batch, i64 begin_ns, i64 step_ns)
{
	struct pipe *pipe = line->pipe;
	struct books *books = &pipe->counters->books;
	for (i64 n = 0; n < BURST; n++) {
		i64 time_ns = begin_ns + (n / GROUP) * GROUP * step_ns;
		i64 handle = take_frame(pipe->pool);
		struct packet *packet = packet_line(pipe->table, handle);
		move(pipe->pool, packet, handle, FREE, HELD);
		packet->arrived_ns = time_ns;
		packet->length = LENGTH;
		packet->frames = 1;
		packet->fragment = NIL;
		books->received++;
		books->received_bytes += LENGTH;
		books->in_flight++;
		books->in_flight_bytes += LENGTH;
		books->in_flight_frames++;
		batch[n].time_ns = time_ns;
		batch[n].handle = handle;
		batch[n].length = LENGTH;
	}
}

static inline void drain(struct drive *drive, struct pipe *pipe)
{
	struct fifo *exit = &pipe->exits->fifo;
	struct books *books = &pipe->counters->books;
	while (exit->head != exit->tail) {
		i64 time_ns = first_time(exit);
		i64 packet = head_packet(exit);
		i64 handle = packet & NIL, length = packet >> 32;
		exit->head++;
		books->sent++;
		books->sent_bytes += length;
		books->in_flight--;
		books->in_flight_bytes -= length;
		i64 spent_ns = time_ns - packet_line(pipe->table, handle)->arrived_ns;
		drive->checksum += (u64)books->sent * (u64)(spent_ns + handle);
		books->in_flight_frames -= give_packet(pipe->memory, handle);
	}
}

EXPORT i64 drive_pipeline(struct drive *drive, struct pipeline *line, i64 bursts)
{
	struct arrival *batch = (struct arrival *)drive->batch;
	for (i64 burst = 0; burst < bursts; burst++) {
		i64 begin_ns = drive->clock_ns;
		drive->clock_ns = begin_ns + BURST * drive->step_ns;
		feed(line, batch, begin_ns, drive->step_ns);
		pipeline_run(line, batch, BURST, drive->clock_ns - 1);
		drain(drive, line->pipe);
	}
	return line->pipe->counters->books.sent;
}

EXPORT i64 pipeline_sizes(i64 *sizes)
{
	sizes[0] = sizeof(struct loss_parameters);
	sizes[1] = sizeof(struct loss_state);
	sizes[2] = sizeof(struct bottleneck_parameters);
	sizes[3] = sizeof(struct bottleneck_state);
	sizes[4] = sizeof(struct delay_parameters);
	sizes[5] = sizeof(struct delay_state);
	sizes[6] = sizeof(struct pipe);
	sizes[7] = sizeof(struct exit);
	sizes[8] = sizeof(struct arrival);
	sizes[9] = sizeof(struct drive);
	return 0;
}
