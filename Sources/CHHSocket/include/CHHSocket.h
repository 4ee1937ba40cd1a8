// What HHSocket computes in C: sums over every byte that is sent or received, for which processors have instructions
// that Swift cannot choose at run time.

#ifndef CHHSOCKET_H
#define CHHSOCKET_H

#include "chhsocket_adler32.h"
#include "chhsocket_sha.h"

#endif
