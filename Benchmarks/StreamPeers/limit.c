// SPDX-License-Identifier: Apache-2.0
// The limit that the system sets: a server that writes frames, and a client that reads and checks them, over one TCP
// connection, without further work. A frame is a header of 16 bytes (type, serial, status, length), the item and zlib's
// adler32 of it, as in HHSocket's standard format.
//
//     limit serve PORT
//     limit PORT BODY WARM_UP SECONDS SERVER_PID
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <zlib.h>

#include "peer.h"

#ifdef LIBDEFLATE
#include <libdeflate.h>
#define CHECKSUM(bytes, length) libdeflate_adler32(1, bytes, length)
#else
#define CHECKSUM(bytes, length) (uint32_t) adler32(1, bytes, (uInt)(length))
#endif

enum { HEADER = 16, TRAILER = 4, BATCH = 256 << 10, TYPE = 1010, STATUS = 206 };

static void put(unsigned char *at, uint32_t number) {
    number = htonl(number);
    memcpy(at, &number, 4);
}

static uint32_t get(const unsigned char *at) {
    uint32_t number;
    memcpy(&number, at, 4);
    return ntohl(number);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Makes each frame separately, with header, copy and checksum, and writes 64 KiB of frames at once.
static void stream(int connection) {
    unsigned char opening[4];
    if (recv(connection, opening, 4, MSG_WAITALL) != 4) return;
    size_t body = get(opening), frame = HEADER + body + TRAILER;
    size_t count = frame >= 65536 ? 1 : 65536 / frame;
    unsigned char *item = malloc(body + 1), *batch = malloc(count * frame);
    memset(item, 'x', body);
    for (;;) {
        for (size_t index = 0; index < count; index++) {
            unsigned char *at = batch + index * frame;
            put(at, TYPE);
            put(at + 4, 1);
            put(at + 8, STATUS);
            put(at + 12, (uint32_t)body);
            memcpy(at + HEADER, item, body);
            put(at + HEADER + body, CHECKSUM(at + HEADER, body));
        }
        for (size_t sent = 0; sent < count * frame;) {
            ssize_t length = send(connection, batch + sent, count * frame - sent, MSG_NOSIGNAL);
            if (length <= 0) goto over;
            sent += (size_t)length;
        }
    }
over:
    free(item);
    free(batch);
}

static void serve(int port) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in address = loopback(port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8)) fail("listen");
    peer_ready(port);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) fail("accept");
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        stream(connection);
        close(connection);
    }
}

static void take(peer_run *run) {
    int connection = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in address = loopback(run->port);
    if (connect(connection, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    unsigned char opening[4];
    put(opening, (uint32_t)run->body);
    if (send(connection, opening, 4, 0) != 4) fail("send");
    size_t capacity = BATCH + 2 * (HEADER + (size_t)run->body + TRAILER), begin = 0, end = 0;
    unsigned char *bytes = malloc(capacity);
    for (;;) {
        if (capacity - end < BATCH) {
            memmove(bytes, bytes + begin, end - begin);
            end -= begin;
            begin = 0;
        }
        ssize_t length = recv(connection, bytes + end, capacity - end < BATCH ? capacity - end : BATCH, 0);
        if (length <= 0) fail("recv");
        end += (size_t)length;
        while (end - begin >= HEADER) {
            size_t body = get(bytes + begin + 12);
            if (body != (size_t)run->body || get(bytes + begin) != TYPE || get(bytes + begin + 8) != STATUS) exit(1);
            if (end - begin < HEADER + body + TRAILER) break;
            if (CHECKSUM(bytes + begin + HEADER, body) != get(bytes + begin + HEADER + body)) exit(1);
            begin += HEADER + body + TRAILER;
            if (!peer_item(run, body)) return;
        }
    }
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && !strcmp(argv[1], "serve")) serve(atoi(argv[2]));
    peer_run run = peer_parse(argc, argv);
    take(&run);
    return 0;
}
