/* A bridge between two AF_XDP sockets, by hand in C: the twins of xskit's loop (engine/worker.py, xsk/path) on the very same
 * sockets, rings and packet memory. Both keep the same counters and histograms. */
#include "rings.h"

/* --- nothing between the ports: as thin as it can be written --------------------------------------------------- */

static i64 pass_reap(struct transmitter *queue)
{
	struct memory *memory = queue->memory;
	i64 done = available(queue->completion, queue->outstanding);
	for (i64 n = 0; n < done; n++) {
		i64 frame = frame_of(memory, *address(queue->completion, n));
		if (frame < 0) {
			queue->strays++;
			continue;
		}
		struct packet *line = packet_line(memory->table, frame);
		struct pool *pool = pool_of(memory, line);
		if (!move(pool, line, frame, TX, FREE)) {
			queue->strays++;
			continue;
		}
		pool->books->in_flight_frames--;
		give_frame(pool, frame);
	}
	if (done > 0)
		release(queue->completion, done);
	queue->outstanding -= done;
	return done;
}

static void pass_kick(struct transmitter *queue, struct books *books, i64 *sent, i64 *sent_bytes)
{
	struct ring *tx = queue->tx;
	for (int tries = 0; tries < KICKS; tries++) {
		i64 left = unconsumed(tx);
		if (left == 0 || !(*tx->flags & 1))
			return;
		i64 code = sendto(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		queue->kicks++;
		if (code < 0 && errno == EBUSY) {
			struct descriptor *refused = (struct descriptor *)tx->entries + ((tx->remote - 1) & tx->mask);
			count_drop(books, TX_REFUSED, refused->length);
			*sent -= 1;
			*sent_bytes -= refused->length;
		} else if (code < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
			pass_reap(queue);
		} else if (code < 0) {
			return;
		}
		if (unconsumed(tx) == left)
			return;
	}
}

EXPORT i64 bridge_pass(struct direction *line, i64 rounds)
{
	struct receiver *receiver = line->ingress;
	struct transmitter *queue = &line->exits->egress->queue;
	struct ring *rx = receiver->rx, *tx = queue->tx;
	struct memory *memory = line->memory;
	struct counters *counters = line->counters;
	struct books *books = &counters->books;
	i64 arrived[BATCH], intended[BATCH];
	i64 floor = 0;
	for (i64 round = 0; round < rounds; round++) {
		i64 count = available(rx, BATCH);
		i64 now_ns = read_clock();
		count = min64(count, room(tx, BATCH));
		if (count > 0) {
			i64 packets = 0, bytes = 0, written = 0;
			for (i64 n = 0; n < count; n++) {
				struct descriptor *in = descriptor(rx, n);
				i64 frame = frame_of(memory, in->address);
				i64 place = in->address - frame * memory->frame_bytes;
				if (frame < 0 || place + in->length > memory->frame_bytes) {
					receiver->strays++;
					continue;
				}
				struct packet *packet = packet_line(memory->table, frame);
				if (!move(pool_of(memory, packet), packet, frame, FILL, TX)) {
					receiver->strays++;
					continue;
				}
				i64 *stamp = (i64 *)(memory->base + in->address - 8);
				i64 time_ns = *stamp;
				*stamp = 0;
				if (time_ns <= 0 || time_ns > now_ns) {
					counters->unstamped++;
					time_ns = now_ns;
				}
				arrived[packets] = time_ns;
				if (time_ns < floor) {
					counters->clamped++;
					counters->clamped_ns = max64(counters->clamped_ns, floor - time_ns);
					line->moved_late += floor - time_ns > line->late_limit_ns;
					time_ns = floor;
				}
				intended[packets] = floor = time_ns;
				*descriptor(tx, written++) = *in;
				bytes += in->length;
				packets += !(in->options & 1);
			}
			floor = count < BATCH ? now_ns : floor;
			release(rx, count);
			receiver->filled -= count;
			books->received += packets;
			books->received_bytes += bytes;
			books->in_flight += packets;
			books->in_flight_bytes += bytes;
			books->in_flight_frames += written;
			counters->peak_frames = max64(counters->peak_frames, books->in_flight_frames);
			counters->clock_ns = now_ns;
			queue->outstanding += written;
			publish(tx, written);
			i64 sent = packets, sent_bytes = bytes;
			pass_kick(queue, books, &sent, &sent_bytes);
			i64 after_ns = read_clock();
			for (i64 n = 0; n < packets; n++)
				record_times(line, after_ns, intended[n], arrived[n]);
			books->sent += sent;
			books->sent_bytes += sent_bytes;
			books->in_flight -= sent;
			books->in_flight_bytes -= sent_bytes;
		}
		pass_reap(queue);
		refill(receiver);
	}
	return books->sent;
}

/* --- loss + bottleneck + delay between them: packets are held -------------------------------------------------- */

static void break_packet(struct receiver *receiver, i64 continues)
{
	receiver->strays++;
	if (receiver->head != NIL) {
		give_packet(receiver->memory, receiver->head);
		receiver->head = NIL;
	}
	receiver->broken = continues;
}

/* A frame of a packet of several; the packet's handle when it was the last one, else NIL. */
static i64 join(struct receiver *receiver, i64 frame, i64 continues)
{
	char *table = receiver->memory->table;
	i64 head = receiver->head;
	if (receiver->broken) {
		give_packet(receiver->memory, frame);
		break_packet(receiver, continues);
		return NIL;
	}
	if (head == NIL) {
		receiver->head = receiver->tail = frame;
		return NIL;
	}
	struct packet *whole = packet_line(table, head);
	whole->length += packet_line(table, frame)->span;
	whole->frames++;
	packet_line(table, receiver->tail)->fragment = (u32)frame;
	receiver->tail = frame;
	if (continues)
		return NIL;
	receiver->head = NIL;
	return head;
}

static i64 receive(struct direction *line, i64 floor)
{
	struct receiver *receiver = line->ingress;
	struct ring *rx = receiver->rx;
	struct memory *memory = receiver->memory;
	struct counters *counters = line->counters;
	struct books *books = &counters->books;
	i64 count = 0, taken = 0, packets = 0, bytes = 0, ready = available(rx, BATCH);
	i64 now_ns = read_clock();
	counters->clock_ns = now_ns;
	for (i64 n = 0; n < ready; n++) {
		struct descriptor *in = descriptor(rx, n);
		i64 frame = frame_of(memory, in->address), head = frame, continues = in->options & 1;
		i64 place = in->address - frame * memory->frame_bytes;
		struct packet *packet = packet_line(memory->table, frame);
		if (frame < 0 || !move(pool_of(memory, packet), packet, frame, FILL, HELD)) {
			break_packet(receiver, continues);
			continue;
		}
		taken++;
		bytes += in->length;
		forget_packet(packet);
		if (place + in->length > memory->frame_bytes) {
			give_packet(memory, frame);
			break_packet(receiver, continues);
			continue;
		}
		packet->address = (i64)(memory->base + in->address);
		packet->length = packet->span = in->length;
		packet->frames = 1;
		i64 time_ns = 0;
		if (receiver->stamped && place >= 8) {
			i64 *stamp = (i64 *)(packet->address - 8);
			time_ns = *stamp;
			*stamp = 0;
		}
		packet->arrived_ns = time_ns;
		if (continues || receiver->head != NIL || receiver->broken) {
			head = join(receiver, frame, continues);
			if (head == NIL)
				continue;
			packet = packet_line(memory->table, head);
			time_ns = packet->arrived_ns;
		}
		packets++;
		i64 length = packet->length, frames = packet->frames, cause = 0;
		books->received++;
		books->received_bytes += length;
		books->in_flight++;
		books->in_flight_bytes += length;
		if (length > line->max_length)
			cause = length > line->wire_length ? SUPER_PACKET : EGRESS_MTU;
		else if (frames > line->max_frames)
			cause = TOO_MANY_FRAGMENTS;
		else if (books->in_flight_frames + frames > line->capacity_frames)
			cause = MEMORY_FULL;
		if (cause) {
			count_drop(books, cause, length);
			give_packet(memory, head);
			continue;
		}
		books->in_flight_frames += frames;
		counters->peak_frames = max64(counters->peak_frames, books->in_flight_frames);
		if (time_ns <= 0 || time_ns > now_ns) {
			counters->unstamped++;
			time_ns = now_ns;
		}
		packet->arrived_ns = time_ns;
		if (time_ns < floor) {
			counters->clamped++;
			counters->clamped_ns = max64(counters->clamped_ns, floor - time_ns);
			line->moved_late += floor - time_ns > line->late_limit_ns;
			time_ns = floor;
		}
		line->rx_batch[count].time_ns = floor = time_ns;
		line->rx_batch[count].handle = head;
		line->rx_batch[count].length = length;
		count++;
	}
	if (ready > 0)
		release(rx, ready);
	receiver->filled -= taken;
	receiver->packets += packets;
	receiver->frames += taken;
	receiver->bytes += bytes;
	return count;
}

static i64 reap(struct transmitter *queue)
{
	struct memory *memory = queue->memory;
	i64 done = available(queue->completion, queue->outstanding);
	for (i64 n = 0; n < done; n++) {
		i64 frame = frame_of(memory, *address(queue->completion, n));
		if (frame < 0) {
			queue->strays++;
			continue;
		}
		struct packet *part = packet_line(memory->table, frame);
		struct pool *pool = pool_of(memory, part);
		if (!move(pool, part, frame, TX, FREE)) {
			queue->strays++;
			continue;
		}
		struct books *books = pool->books;
		books->in_flight_frames--;
		if (part->state & LAST) {
			i64 length = part->length;
			queue->outstanding_packets--;
			if (part->state & REFUSED) {
				count_drop(books, TX_REFUSED, length);
			} else {
				books->sent++;
				books->sent_bytes += length;
				books->in_flight--;
				books->in_flight_bytes -= length;
			}
			give_frame(pool, part->state & SET ? (i64)part->next : frame);
		} else if (!(part->state & SET)) {
			give_frame(pool, frame);
		}
	}
	if (done > 0)
		release(queue->completion, done);
	queue->outstanding -= done;
	return done;
}

static void kick(struct transmitter *queue)
{
	struct ring *tx = queue->tx;
	for (int tries = 0; tries < KICKS; tries++) {
		i64 left = unconsumed(tx);
		if (left == 0 || !(*tx->flags & 1))
			return;
		i64 code = sendto(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		queue->kicks++;
		if (code < 0 && errno == EBUSY) {
			unconsumed(tx);
			struct descriptor *refused = (struct descriptor *)tx->entries + ((tx->remote - 1) & tx->mask);
			i64 frame = frame_of(queue->memory, refused->address);
			queue->refused++;
			if (frame >= 0)
				packet_line(queue->memory->table, frame)->state |= REFUSED;
		} else if (code < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
			reap(queue);
		} else if (code < 0) {
			return;
		}
		if (unconsumed(tx) == left)
			return;
	}
}

static void transmit(struct direction *line)
{
	struct fifo *exit = &line->exits->fifo;
	struct transmitter *queue = &line->exits->egress->queue;
	struct memory *memory = queue->memory;
	struct ring *tx = queue->tx;
	i64 waiting = min64(exit->tail - exit->head, BATCH), first = exit->head, taken = 0, descriptors = 0;
	if (waiting == 0)
		return;
	i64 free = room(tx, BATCH * line->max_frames);
	for (; taken < waiting; taken++) {
		i64 frame = head_packet(exit) & NIL;
		struct packet *packet = packet_line(memory->table, frame);
		if (descriptors + packet->frames > free)
			break;
		u32 length = packet->length;
		while (frame != NIL) {
			struct packet *part = packet_line(memory->table, frame);
			struct descriptor *out = descriptor(tx, descriptors++);
			out->address = part->address - (i64)memory->base;
			out->length = part->span;
			out->options = part->fragment != NIL;
			if (!(part->state & SET))
				part->next = (u32)queue->number;
			part->state = (part->state & SET) | (part->fragment == NIL ? LAST : 0);
			move(pool_of(memory, part), part, frame, HELD, TX);
			if (part->fragment == NIL)
				part->length = length;
			frame = part->fragment;
		}
		exit->head++;
	}
	if (taken == 0)
		return;
	queue->outstanding += descriptors;
	queue->outstanding_packets += taken;
	queue->packets += taken;
	publish(tx, descriptors);
	kick(queue);
	i64 now_ns = read_clock();
	for (i64 position = first; position < first + taken; position++) {
		struct entry *entry = &exit->entries[position & exit->mask];
		record_times(line, now_ns, entry->time_ns, packet_line(memory->table, entry->packet & NIL)->arrived_ns);
	}
}

EXPORT i64 bridge_hold(struct direction *line, struct pipeline *pipeline, i64 rounds)
{
	struct counters *counters = line->counters;
	for (i64 round = 0; round < rounds; round++) {
		i64 count = receive(line, pipeline->pipe->watermark_ns);
		i64 now_ns = counters->clock_ns;
		if (count > 0 || now_ns >= line->next_ns)
			line->next_ns = pipeline_run(pipeline, line->rx_batch, count,
						     count < BATCH ? now_ns : line->rx_batch[BATCH - 1].time_ns);
		transmit(line);
		reap(&line->exits->egress->queue);
		refill(line->ingress);
	}
	return counters->books.sent;
}

EXPORT i64 bridge_sizes(i64 *sizes)
{
	sizes[0] = sizeof(struct ring);
	sizes[1] = sizeof(struct receiver);
	sizes[2] = sizeof(struct egress);
	sizes[3] = sizeof(struct exit);
	sizes[4] = sizeof(struct direction);
	return 0;
}
