// SPDX-License-Identifier: Apache-2.0
// Adler-32 as computed by zlib, which appends it to compressed data.

import { deflateSync } from "node:zlib";

/** The checksum of `bytes`. */
export function adler32(bytes) {
    const compressed = deflateSync(bytes);
    return compressed.readUInt32BE(compressed.length - 4);
}
