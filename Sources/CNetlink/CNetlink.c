// SPDX-License-Identifier: Apache-2.0
#ifdef __linux__

#define _GNU_SOURCE

#include "CNetlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The largest number of reads at once, so that a storm of changes does not block the caller. The descriptor stays
// readable if messages are left.
enum { READS_AT_ONCE = 64 };

// Messages are at most as large as a page, or 8 KiB if pages are larger.
enum { BUFFER_LENGTH = 16 * 1024 };

static int open_socket(uint32_t groups) {
    int descriptor = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (descriptor < 0) return -errno;
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = groups};
    if (bind(descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        close(descriptor);
        return -error;
    }
    return descriptor;
}

int cnetlink_open(void) {
    return open_socket(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE);
}

// Reads one datagram of the kernel. Returns its length, 0 for a datagram of another sender, or a negative errno;
// -EMSGSIZE if it was longer than the buffer.
static ssize_t receive(int descriptor, void *buffer, size_t length) {
    struct sockaddr_nl sender = {0};
    struct iovec vector = {.iov_base = buffer, .iov_len = length};
    struct msghdr message = {
        .msg_name = &sender, .msg_namelen = sizeof sender, .msg_iov = &vector, .msg_iovlen = 1};
    ssize_t count;
    do {
        count = recvmsg(descriptor, &message, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return -errno;
    if (message.msg_namelen != sizeof sender || sender.nl_pid != 0) return 0;
    return message.msg_flags & MSG_TRUNC ? -EMSGSIZE : count;
}

static int change(const struct nlmsghdr *header) {
    switch (header->nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
    case RTM_NEWADDR:
    case RTM_DELADDR:
        return CNETLINK_ADDRESSES;
    case RTM_NEWROUTE:
    case RTM_DELROUTE: {
        // The specific routes of a router change most often, and do not matter here.
        if (header->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg))) return 0;
        const struct rtmsg *route = NLMSG_DATA(header);
        return route->rtm_dst_len <= 1 ? CNETLINK_ROUTES : 0;
    }
    default:
        return 0;
    }
}

int cnetlink_drain(int descriptor) {
    _Alignas(struct nlmsghdr) char buffer[BUFFER_LENGTH];
    int changes = 0;
    for (int reads = 0; reads < READS_AT_ONCE; reads++) {
        ssize_t count = receive(descriptor, buffer, sizeof buffer);
        if (count == -EAGAIN || count == -EWOULDBLOCK) break;
        if (count == -ENOBUFS || count == -EMSGSIZE) {
            changes |= CNETLINK_OVERRUN;
            continue;
        }
        if (count < 0) return (int)count;
        int left = (int)count;
        for (struct nlmsghdr *header = (struct nlmsghdr *)buffer; NLMSG_OK(header, left);
             header = NLMSG_NEXT(header, left)) {
            changes |= change(header);
        }
    }
    return changes;
}

// Returns the address of a root name server, which is on the internet, and for which no network has a specific route.
static const char *root(int family) { return family == AF_INET6 ? "2001:503:ba3e::2:30" : "198.41.0.4"; }

// Reads the answer to a route request.
static int read_route(
    const struct nlmsghdr *header,
    char interface[CNETLINK_NAME_LENGTH],
    char router[CNETLINK_NAME_LENGTH]
) {
    if (header->nlmsg_type != RTM_NEWROUTE || header->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg))) return 0;
    const struct rtmsg *route = NLMSG_DATA(header);
    if (route->rtm_type != RTN_UNICAST) return 0;
    int is_found = 0;
    // Signed: after the last attribute the kernel's macros may count below 0.
    int left = (int)(header->nlmsg_len - NLMSG_LENGTH(sizeof(struct rtmsg)));
    for (const struct rtattr *attribute = RTM_RTA(route); RTA_OK(attribute, left);
         attribute = RTA_NEXT(attribute, left)) {
        const void *data = RTA_DATA(attribute);
        size_t length = RTA_PAYLOAD(attribute);
        switch (attribute->rta_type) {
        case RTA_OIF: {
            uint32_t index;
            if (length < sizeof index) break;
            memcpy(&index, data, sizeof index);
            is_found = if_indextoname(index, interface) != NULL;
            break;
        }
        case RTA_GATEWAY:
            if (length < (route->rtm_family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr))) break;
            inet_ntop(route->rtm_family, data, router, CNETLINK_NAME_LENGTH);
            break;
        case RTA_VIA: {
            // The router has an address of the other family.
            const struct rtvia *via = data;
            if (length < sizeof *via) break;
            size_t needed = via->rtvia_family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
            if (length >= sizeof *via + needed) {
                inet_ntop(via->rtvia_family, via->rtvia_addr, router, CNETLINK_NAME_LENGTH);
            }
            break;
        }
        default:
            break;
        }
    }
    return is_found;
}

int cnetlink_route_out(int family, char interface[CNETLINK_NAME_LENGTH], char router[CNETLINK_NAME_LENGTH]) {
    memset(interface, 0, CNETLINK_NAME_LENGTH);
    memset(router, 0, CNETLINK_NAME_LENGTH);
    int descriptor = open_socket(0);
    if (descriptor < 0) return 0;

    struct {
        struct nlmsghdr header;
        struct rtmsg route;
        struct rtattr attribute;
        unsigned char address[sizeof(struct in6_addr)];
    } request;
    memset(&request, 0, sizeof request);
    size_t length = family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.header.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof request.route) + RTA_LENGTH(length));
    request.route.rtm_family = (unsigned char)family;
    request.route.rtm_dst_len = (unsigned char)(length * 8);
    request.attribute.rta_type = RTA_DST;
    request.attribute.rta_len = (unsigned short)RTA_LENGTH(length);

    int is_found = 0;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (inet_pton(family, root(family), request.address) == 1 &&
        sendto(descriptor, &request, request.header.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof kernel) > 0) {
        // The kernel answers before `sendto` returns.
        _Alignas(struct nlmsghdr) char buffer[BUFFER_LENGTH];
        ssize_t count = receive(descriptor, buffer, sizeof buffer);
        struct nlmsghdr *header = (struct nlmsghdr *)buffer;
        if (count > 0 && NLMSG_OK(header, (int)count)) is_found = read_route(header, interface, router);
    }
    close(descriptor);
    return is_found;
}

#endif
