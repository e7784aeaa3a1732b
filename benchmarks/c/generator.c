/* A sender of equal packets from an AF_XDP socket: in a burst, or one every so often. */
#include "rings.h"

struct sender {
	struct ring *tx, *completion;
	i64 fd, frame_bytes, packet_bytes;
	i64 outstanding;
};

static void reap(struct sender *sender)
{
	i64 done = available(sender->completion, sender->outstanding);
	if (done > 0)
		release(sender->completion, done);
	sender->outstanding -= done;
}

static void push(struct sender *sender, i64 count)
{
	struct ring *tx = sender->tx;
	for (i64 n = 0; n < count; n++) {
		i64 frame = (tx->local + n) & tx->mask;
		*descriptor(tx, n) = (struct descriptor){frame * sender->frame_bytes, sender->packet_bytes, 0};
	}
	publish(tx, count);
	sender->outstanding += count;
}

/* Until all is sent, or nothing moves any more. */
static void flush(struct sender *sender)
{
	for (i64 idle = 0; sender->outstanding > 0 && idle < 100000; idle++) {
		i64 before = sender->outstanding;
		if (unconsumed(sender->tx) > 0)
			sendto(sender->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		reap(sender);
		if (sender->outstanding < before)
			idle = 0;
	}
}

/* `count` packets at once, at most a ring full; returns how many were sent. */
EXPORT i64 burst(struct sender *sender, i64 count)
{
	push(sender, room(sender->tx, count));
	flush(sender);
	return count - sender->outstanding;
}

/* `count` packets, `group` of them every `interval_ns`; returns how many were sent. */
EXPORT i64 pace(struct sender *sender, i64 count, i64 group, i64 interval_ns)
{
	i64 due_ns = read_clock();
	for (i64 sent = 0; sent < count; sent += group, due_ns += interval_ns) {
		while (read_clock() < due_ns)
			;
		push(sender, min64(group, count - sent));
		flush(sender);
		if (sender->outstanding > 0)
			return sent;
	}
	return count;
}

EXPORT i64 sender_sizes(i64 *sizes)
{
	sizes[0] = sizeof(struct sender);
	return 0;
}
