// SPDX-License-Identifier: Apache-2.0
#ifndef CNETLINK_H
#define CNETLINK_H

// Listens to the Linux kernel for changes of the network, and asks it for the route to the internet. Empty on other
// systems.
#ifdef __linux__

// The kinds of changes.
enum {
    // An interface or an address.
    CNETLINK_ADDRESSES = 1,
    // The route to the internet: a default route, or one of the two halves with which VPNs override it.
    CNETLINK_ROUTES = 2,
    // More changes than the kernel could buffer, so anything may have changed.
    CNETLINK_OVERRUN = 4,
};

// A length that suffices for the name of an interface, and for an address as text, with the final 0.
enum { CNETLINK_NAME_LENGTH = 64 };

// Opens a socket that receives changes of links, addresses and routes. It does not block and is not inherited.
//
// Returns its descriptor, or a negative errno.
int cnetlink_open(void);

// Reads the pending messages, and returns a mask of changes, 0 if nothing relevant has changed; or a negative errno if
// the socket has failed.
int cnetlink_drain(int descriptor);

// Asks the kernel for the route to an address on the internet, of a family (AF_INET or AF_INET6), by its rules and
// tables. Nothing is sent over the network.
//
// Writes the interface, and the router or an empty text if there is none. Returns 1 if there is a route, 0 if there is
// none or the kernel does not answer.
int cnetlink_route_out(int family, char interface[CNETLINK_NAME_LENGTH], char router[CNETLINK_NAME_LENGTH]);

#endif
#endif
