// SPDX-License-Identifier: Apache-2.0
// The parts of HHSocket in C: checksums and digests over every byte that is sent or received, for which processors have
// instructions that Swift cannot select at run time, and what the C library offers and its Swift module leaves out.

#ifndef CHHSOCKET_H
#define CHHSOCKET_H

#include "chhsocket_adler32.h"
#include "chhsocket_clock.h"
#include "chhsocket_memory.h"
#include "chhsocket_sha.h"

#endif
