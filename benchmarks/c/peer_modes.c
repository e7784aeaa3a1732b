/* rxdrop, txonly and l2fwd as xdpsock does them (bpf-examples, AF_XDP-example/xdpsock.c: rx_drop, tx_only, l2fwd), by
 * hand in C, on the rings and the packet memory of xskit's own benchmark, and past its packet table. */
#include "rings.h"

/* What a twin knows (peers.py, Peer): rings and memory of the socket, and books of its own. */
struct peer {
	struct ring *rx, *fill, *tx, *completion;
	i64 fd;
	char *base;
	i64 frame_bytes, batch, busy_poll, wake_always;
	i64 frames, length; /* txonly: of its circle; of a packet */
	i64 received, received_bytes, submitted, submitted_bytes, completed, outstanding, refused;
	i64 rx_calls, tx_calls, fill_fails;
};

static inline int needs_wakeup(struct ring *ring)
{
	return __atomic_load_n(ring->flags, __ATOMIC_ACQUIRE) & 1;
}

static void kick_tx(struct peer *queue)
{
	if (sendto(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno == EBUSY)
		queue->refused++;
}

static void kick_rx(struct peer *queue)
{
	recvfrom(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static void rx_drop(struct peer *queue)
{
	struct ring *rx = queue->rx, *fill = queue->fill;
	i64 received = available(rx, queue->batch);
	if (received == 0) {
		if (queue->busy_poll || needs_wakeup(fill)) {
			queue->rx_calls++;
			kick_rx(queue);
		}
		return;
	}
	while (room(fill, received) != received)
		if (queue->busy_poll || needs_wakeup(fill)) {
			queue->fill_fails++;
			kick_rx(queue);
		}
	i64 bytes = 0;
	for (i64 n = 0; n < received; n++) {
		bytes += descriptor(rx, n)->length;
		*address(fill, n) = descriptor(rx, n)->address;
	}
	publish(fill, received);
	release(rx, received);
	queue->received += received;
	queue->received_bytes += bytes;
}

static void complete_l2fwd(struct peer *queue)
{
	if (queue->outstanding == 0)
		return;
	queue->tx_calls++;
	kick_tx(queue);
	i64 done = available(queue->completion, min64(queue->outstanding, queue->batch));
	if (done == 0)
		return;
	while (room(queue->fill, done) != done)
		if (queue->busy_poll || needs_wakeup(queue->fill)) {
			queue->fill_fails++;
			kick_rx(queue);
		}
	for (i64 n = 0; n < done; n++)
		*address(queue->fill, n) = *address(queue->completion, n);
	publish(queue->fill, done);
	release(queue->completion, done);
	queue->outstanding -= done;
	queue->completed += done;
}

static void swap_mac_addresses(char *data)
{
	char kept[6];
	memcpy(kept, data, 6);
	memcpy(data, data + 6, 6);
	memcpy(data + 6, kept, 6);
}

static void l2fwd(struct peer *queue)
{
	complete_l2fwd(queue);
	i64 received = available(queue->rx, queue->batch);
	if (received == 0) {
		if (queue->busy_poll || needs_wakeup(queue->fill)) {
			queue->rx_calls++;
			kick_rx(queue);
		}
		return;
	}
	while (room(queue->tx, received) != received) {
		complete_l2fwd(queue);
		if (queue->busy_poll || needs_wakeup(queue->tx)) {
			queue->tx_calls++;
			kick_tx(queue);
		}
	}
	i64 bytes = 0;
	for (i64 n = 0; n < received; n++) {
		struct descriptor in = *descriptor(queue->rx, n);
		swap_mac_addresses(queue->base + in.address);
		*descriptor(queue->tx, n) = (struct descriptor){in.address, in.length, 0};
		bytes += in.length;
	}
	publish(queue->tx, received);
	release(queue->rx, received);
	queue->received += received;
	queue->received_bytes += bytes;
	queue->submitted += received;
	queue->outstanding += received;
}

static void complete_txonly(struct peer *queue)
{
	if (queue->outstanding == 0)
		return;
	if (queue->wake_always || needs_wakeup(queue->tx)) {
		queue->tx_calls++;
		kick_tx(queue);
	}
	i64 done = available(queue->completion, queue->batch);
	if (done > 0) {
		release(queue->completion, done);
		queue->outstanding -= done;
		queue->completed += done;
	}
}

static i64 cpu_clock(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* What xdpsock asks in every round: benchmark_done, opt_poll, num_socks. */
static volatile int stop, polls, socket_count = 1;

/* Until so many packets were received; returns ns of CPU time. */
EXPORT i64 peer_rxdrop(struct peer *queue, i64 goal)
{
	struct peer *sockets[] = {queue};
	i64 begun = cpu_clock();
	while (queue->received < goal && !stop && !polls)
		for (int number = 0; number < socket_count; number++)
			rx_drop(sockets[number]);
	return cpu_clock() - begun;
}

/* Until so many packets were received, and all are home; ns of CPU time. */
EXPORT i64 peer_l2fwd(struct peer *queue, i64 goal)
{
	struct peer *sockets[] = {queue};
	i64 begun = cpu_clock();
	while ((queue->received < goal || queue->outstanding > 0) && !stop && !polls)
		for (int number = 0; number < socket_count; number++)
			l2fwd(sockets[number]);
	return cpu_clock() - begun;
}

/* `count` packets, and all are home; frames are taken in a circle, as xdpsock does. ns of CPU time. */
EXPORT i64 peer_txonly(struct peer *queue, i64 count)
{
	static i64 frame;
	i64 frames = queue->frames, begun = cpu_clock();
	for (i64 sent = 0; sent < count;) {
		i64 batch = min64(queue->batch, count - sent);
		while (room(queue->tx, batch) < batch)
			complete_txonly(queue);
		for (i64 n = 0; n < batch; n++)
			*descriptor(queue->tx, n) =
				(struct descriptor){(frame + n) % frames * queue->frame_bytes, queue->length, 0};
		publish(queue->tx, batch);
		queue->submitted += batch;
		queue->submitted_bytes += batch * queue->length;
		queue->outstanding += batch;
		frame = (frame + batch) % frames;
		sent += batch;
		complete_txonly(queue);
	}
	while (queue->outstanding > 0)
		complete_txonly(queue);
	return cpu_clock() - begun;
}

EXPORT i64 peer_sizes(i64 *sizes)
{
	sizes[0] = sizeof(struct ring);
	sizes[1] = sizeof(struct peer);
	return 0;
}
