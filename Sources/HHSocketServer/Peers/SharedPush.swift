// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// A push for any number of peers.
enum SharedPush {
    case one(type: UInt32, body: OwnedBytes)
    /// Encoded for each listener; nil where its format has no such push.
    case encoded([PushQueue.Push?])
}
