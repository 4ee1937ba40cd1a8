// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A push for any number of peers.
enum SharedPush {
    case one(type: UInt32, body: ByteBuffer)
    /// Encoded for each listener; nil where its format has no such push.
    case encoded([PushQueue.Push?])
}
