// SPDX-License-Identifier: Apache-2.0
import NIOCore

extension SendBytes {
    /// The largest unmasked payload that is copied after its header, which is cheaper than a vector for each. Larger
    /// ones are not copied.
    static let largestCopiedPayload = 2_048

    /// Appends a payload, or a part of one, after the header in ``gathered``. A masked one is masked as it is copied;
    /// the mask then fits the next part.
    mutating func append(_ payload: ByteBuffer, masking mask: inout WebSocketMask?) {
        if var current = mask {
            payload.withUnsafeReadableBytes { self.gathered.write($0, &current) }
            mask = current
        } else if payload.readableBytes > Self.largestCopiedPayload {
            self.append(payload)
            self.prepare()
        } else {
            self.gathered.writeImmutableBuffer(payload)
        }
    }
}
