/* A bridge between two AF_XDP sockets, by hand in C: the twins of xskit's loop (engine/worker.py) on the very same
 * sockets, rings and packet memory. Both keep the same counters and histograms. */
#include "rings.h"

/* --- nothing between the ports: as thin as it can be written --------------------------------------------------- */

static i64 pass_reap(struct direction *line)
{
	struct egress *egress = line->exits->egress;
	struct counters *counters = line->counters;
	i64 done = available(egress->completion, egress->outstanding);
	for (i64 n = 0; n < done; n++)
		give_frame(line->pool, *address(egress->completion, n) >> line->frame_shift);
	if (done > 0)
		release(egress->completion, done);
	counters->in_flight_frames -= done;
	egress->outstanding -= done;
	return done;
}

static void pass_kick(struct direction *line, i64 *sent, i64 *sent_bytes)
{
	struct egress *egress = line->exits->egress;
	struct ring *tx = egress->tx;
	for (int tries = 0; tries < KICKS; tries++) {
		i64 left = unconsumed(tx);
		if (left == 0 || !(*tx->flags & 1))
			return;
		i64 code = sendto(egress->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		egress->kicks++;
		if (code < 0 && errno == EBUSY) {
			struct descriptor *refused = (struct descriptor *)tx->entries + ((tx->remote - 1) & tx->mask);
			count_drop(line->counters, TX_REFUSED, refused->length);
			*sent -= 1;
			*sent_bytes -= refused->length;
		} else if (code < 0 && errno == EAGAIN) {
			pass_reap(line);
		} else if (code < 0) {
			return;
		}
		if (unconsumed(tx) == left)
			return;
	}
}

EXPORT i64 bridge_pass(struct direction *line, i64 rounds)
{
	struct ring *rx = line->ingress->rx, *tx = line->exits->egress->tx;
	struct counters *counters = line->counters;
	i64 arrived[BATCH], intended[BATCH];
	i64 floor = 0;
	for (i64 round = 0; round < rounds; round++) {
		i64 count = available(rx, BATCH);
		i64 now_ns = read_clock();
		count = min64(count, room(tx, BATCH));
		if (count > 0) {
			i64 packets = 0, bytes = 0;
			for (i64 n = 0; n < count; n++) {
				struct descriptor *in = descriptor(rx, n), *out = descriptor(tx, n);
				i64 *stamp = (i64 *)(line->base + in->address - 8);
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
				*out = *in;
				bytes += in->length;
				packets += !(in->options & 1);
			}
			floor = count < BATCH ? now_ns : floor;
			release(rx, count);
			counters->received += packets;
			counters->received_bytes += bytes;
			counters->in_flight += packets;
			counters->in_flight_bytes += bytes;
			counters->in_flight_frames += count;
			counters->peak_frames = max64(counters->peak_frames, counters->in_flight_frames);
			counters->clock_ns = now_ns;
			line->exits->egress->outstanding += count;
			publish(tx, count);
			i64 sent = packets, sent_bytes = bytes;
			pass_kick(line, &sent, &sent_bytes);
			i64 after_ns = read_clock();
			for (i64 n = 0; n < packets; n++)
				record_times(line, after_ns, intended[n], arrived[n]);
			counters->sent += sent;
			counters->sent_bytes += sent_bytes;
			counters->in_flight -= sent;
			counters->in_flight_bytes -= sent_bytes;
		}
		pass_reap(line);
		refill(line);
	}
	return counters->sent;
}

/* --- loss + bottleneck + delay between them: packets are held -------------------------------------------------- */

static i64 receive(struct direction *line, i64 floor)
{
	struct ingress *ingress = line->ingress;
	struct ring *rx = ingress->rx;
	struct counters *counters = line->counters;
	i64 count = 0, ready = available(rx, BATCH);
	i64 now_ns = read_clock();
	line->counters->clock_ns = now_ns;
	for (i64 n = 0; n < ready; n++) {
		struct descriptor *in = descriptor(rx, n);
		i64 frame = in->address >> line->frame_shift, head = frame;
		struct packet *packet = packet_line(line->table, frame);
		packet->address = (i64)(line->base + in->address);
		packet->span = in->length;
		packet->fragment = NIL;
		if (ingress->head == NIL) {
			packet->length = in->length;
			packet->frames = 1;
			if (in->options & 1) {
				ingress->head = ingress->tail = frame;
				continue;
			}
		} else {
			head = ingress->head;
			struct packet *whole = packet_line(line->table, head);
			whole->length += in->length;
			whole->frames++;
			packet_line(line->table, ingress->tail)->fragment = (u32)frame;
			ingress->tail = frame;
			if (in->options & 1)
				continue;
			ingress->head = NIL;
		}
		packet = packet_line(line->table, head);
		i64 length = packet->length, frames = packet->frames, cause = 0;
		counters->received++;
		counters->received_bytes += length;
		counters->in_flight++;
		counters->in_flight_bytes += length;
		if (length > line->max_length)
			cause = length > line->wire_length ? SUPER_PACKET : EGRESS_MTU;
		else if (frames > line->max_frames)
			cause = TOO_MANY_FRAGMENTS;
		else if (counters->in_flight_frames + frames > line->capacity_frames)
			cause = MEMORY_FULL;
		if (cause) {
			count_drop(counters, cause, length);
			give_packet(line->pool, line->table, head);
			continue;
		}
		counters->in_flight_frames += frames;
		counters->peak_frames = max64(counters->peak_frames, counters->in_flight_frames);
		i64 *stamp = (i64 *)(packet->address - 8);
		i64 time_ns = *stamp;
		*stamp = 0;
		if (time_ns <= 0 || time_ns > now_ns) {
			counters->unstamped++;
			time_ns = now_ns;
		}
		packet->arrived_ns = time_ns;
		packet->egress = 0;
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
	return count;
}

static i64 reap(struct direction *line)
{
	struct egress *egress = line->exits->egress;
	struct counters *counters = line->counters;
	i64 done = available(egress->completion, egress->outstanding);
	for (i64 n = 0; n < done; n++) {
		i64 frame = *address(egress->completion, n) >> line->frame_shift;
		struct packet *part = packet_line(line->table, frame);
		if (part->state & LAST) {
			i64 length = part->length;
			egress->outstanding_packets--;
			if (part->state & REFUSED) {
				count_drop(counters, TX_REFUSED, length);
			} else {
				counters->sent++;
				counters->sent_bytes += length;
				counters->in_flight--;
				counters->in_flight_bytes -= length;
			}
		}
		give_frame(line->pool, frame);
	}
	if (done > 0)
		release(egress->completion, done);
	counters->in_flight_frames -= done;
	egress->outstanding -= done;
	return done;
}

static void kick(struct direction *line)
{
	struct egress *egress = line->exits->egress;
	struct ring *tx = egress->tx;
	for (int tries = 0; tries < KICKS; tries++) {
		i64 left = unconsumed(tx);
		if (left == 0 || !(*tx->flags & 1))
			return;
		i64 code = sendto(egress->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		egress->kicks++;
		if (code < 0 && errno == EBUSY) {
			unconsumed(tx);
			struct descriptor *refused = (struct descriptor *)tx->entries + ((tx->remote - 1) & tx->mask);
			packet_line(line->table, refused->address >> line->frame_shift)->state |= REFUSED;
		} else if (code < 0 && errno == EAGAIN) {
			reap(line);
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
	struct egress *egress = line->exits->egress;
	struct ring *tx = egress->tx;
	i64 waiting = min64(exit->tail - exit->head, BATCH), first = exit->head, taken = 0, descriptors = 0;
	if (waiting == 0)
		return;
	i64 free = room(tx, BATCH * line->max_frames);
	for (; taken < waiting; taken++) {
		i64 frame = head_packet(exit) & NIL;
		struct packet *packet = packet_line(line->table, frame);
		if (descriptors + packet->frames > free)
			break;
		u32 length = packet->length;
		while (frame != NIL) {
			struct packet *part = packet_line(line->table, frame);
			struct descriptor *out = descriptor(tx, descriptors++);
			out->address = part->address - (i64)line->base;
			out->length = part->span;
			out->options = part->fragment != NIL;
			part->state = part->fragment == NIL ? LAST : 0;
			if (part->fragment == NIL)
				part->length = length;
			frame = part->fragment;
		}
		exit->head++;
	}
	if (taken == 0)
		return;
	egress->outstanding += descriptors;
	egress->outstanding_packets += taken;
	publish(tx, descriptors);
	kick(line);
	i64 now_ns = read_clock();
	for (i64 position = first; position < first + taken; position++) {
		struct entry *entry = &exit->entries[position & exit->mask];
		record_times(line, now_ns, entry->time_ns, packet_line(line->table, entry->packet & NIL)->arrived_ns);
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
		reap(line);
		refill(line);
	}
	return counters->sent;
}

EXPORT i64 bridge_sizes(i64 *sizes)
{
	sizes[0] = sizeof(struct ring);
	sizes[1] = sizeof(struct ingress);
	sizes[2] = sizeof(struct egress);
	sizes[3] = sizeof(struct direction);
	return 0;
}
