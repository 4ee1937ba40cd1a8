// SPDX-License-Identifier: Apache-2.0
/*
 * An echo server on libwebsockets, for Benchmarks/Scripts/bench-websocket: `libwebsockets PORT`. Prints READY when it listens.
 *
 * As the library's documentation requires, received messages are queued, and sent when the connection is writable,
 * until the socket takes no more. A part of a message that arrives is sent as a fragment, so that none waits for the
 * rest, and the library's own buffer holds a large message whole. Memory of the queue is reused.
 */
#include <libwebsockets.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part {
    unsigned char *bytes; /* after LWS_PRE bytes for the header */
    size_t length, capacity;
    int flags;
};

/* A ring of parts that wait, whose number is a power of two. */
struct queue {
    struct part *parts;
    size_t capacity, start, count;
};

static volatile sig_atomic_t is_over;

static void end(int signal_number) {
    (void)signal_number;
    is_over = 1;
}

static int append(struct queue *queue, const void *bytes, size_t length, int flags) {
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity ? 2 * queue->capacity : 64;
        struct part *parts = calloc(capacity, sizeof *parts);
        if (!parts) return -1;
        for (size_t index = 0; index < queue->capacity; index++) {
            parts[index] = queue->parts[(queue->start + index) & (queue->capacity - 1)];
        }
        free(queue->parts);
        queue->parts = parts;
        queue->capacity = capacity;
        queue->start = 0;
    }
    struct part *part = &queue->parts[(queue->start + queue->count) & (queue->capacity - 1)];
    if (part->capacity < length) {
        free(part->bytes);
        part->bytes = malloc(LWS_PRE + length);
        if (!part->bytes) return -1;
        part->capacity = length;
    }
    memcpy(part->bytes + LWS_PRE, bytes, length);
    part->length = length;
    part->flags = flags;
    queue->count++;
    return 0;
}

static int callback(struct lws *connection, enum lws_callback_reasons reason, void *user, void *bytes, size_t length) {
    struct queue *queue = user;
    switch (reason) {
    case LWS_CALLBACK_RECEIVE: {
        int flags = lws_write_ws_flags(
            lws_frame_is_binary(connection) ? LWS_WRITE_BINARY : LWS_WRITE_TEXT,
            lws_is_first_fragment(connection),
            lws_is_final_fragment(connection)
        );
        if (append(queue, bytes, length, flags) != 0) return -1;
        lws_callback_on_writable(connection);
        return 0;
    }
    case LWS_CALLBACK_SERVER_WRITEABLE:
        while (queue->count > 0) {
            struct part *part = &queue->parts[queue->start];
            if (lws_write(connection, part->bytes + LWS_PRE, part->length, part->flags) < 0) return -1;
            queue->start = (queue->start + 1) & (queue->capacity - 1);
            queue->count--;
            if (queue->count > 0 && lws_send_pipe_choked(connection)) {
                lws_callback_on_writable(connection);
                break;
            }
        }
        return 0;
    case LWS_CALLBACK_CLOSED:
        for (size_t index = 0; index < queue->capacity; index++) free(queue->parts[index].bytes);
        free(queue->parts);
        return 0;
    default:
        return 0;
    }
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    signal(SIGTERM, end);
    signal(SIGINT, end);
    lws_set_log_level(0, NULL);
    static struct lws_protocols protocols[] = {
        {.name = "echo", .callback = callback, .per_session_data_size = sizeof(struct queue), .rx_buffer_size = 128 << 10},
        {0},
    };
    struct lws_context_creation_info info = {0};
    info.port = atoi(arguments[1]);
    info.iface = "127.0.0.1";
    info.protocols = protocols;
    info.pt_serv_buf_size = 128 << 10;
    info.gid = (gid_t)-1;
    info.uid = (uid_t)-1;
    struct lws_context *context = lws_create_context(&info);
    if (!context) return 1;
    puts("READY");
    fflush(stdout);
    while (!is_over && lws_service(context, 0) >= 0) {}
    lws_context_destroy(context);
    return 0;
}
