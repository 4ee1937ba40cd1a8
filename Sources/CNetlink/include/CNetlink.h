#ifndef CNETLINK_H
#define CNETLINK_H

// Hears from the Linux kernel that something about the network has changed, and asks it where packets leave. Empty on
// other systems.
#ifdef __linux__

// What has changed.
enum {
    // An interface or an address.
    CNETLINK_ADDRESSES = 1,
    // The way out: a default route, or a half of one, as VPNs lay over it.
    CNETLINK_ROUTES = 2,
    // More than could be kept for the reader, so it may be anything.
    CNETLINK_OVERRUN = 4,
};

// Enough for the name of an interface, and for an address as text; both end with 0.
enum { CNETLINK_NAME_LENGTH = 64 };

// Opens a socket that hears of links, addresses and routes. It does not block and is not inherited.
//
// Returns its descriptor, or an errno, negative.
int cnetlink_open(void);

// Reads what has come, and tells what has changed: a mask, 0 if nothing that matters. A negative errno if nothing more
// will ever come.
int cnetlink_drain(int descriptor);

// Where packets to the internet leave: asks the kernel for the route to an address, for a family (AF_INET or AF_INET6),
// as its rules and tables have it. Nothing is sent to anybody.
//
// Writes the interface, and the router or an empty text where there is none between. Returns 1 if there is such a way,
// 0 if there is none or the kernel does not say.
int cnetlink_route_out(int family, char interface[CNETLINK_NAME_LENGTH], char router[CNETLINK_NAME_LENGTH]);

#endif
#endif
