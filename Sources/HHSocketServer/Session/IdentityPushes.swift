// SPDX-License-Identifier: Apache-2.0
import NIOCore

extension SessionRegistry {
    /// The connections of an identity that are not WebSockets with messages, the oldest first.
    func sessions(of identity: String) -> [ServerSession] {
        self.connections(of: identity).compactMap { $0 as? ServerSession }
    }

    /// Sends a push to every connection of an identity.
    ///
    /// - Returns: The number of connections that accepted it.
    func push(type: UInt32, body: ByteBuffer, to identity: String) async -> Int {
        var count = 0
        for session in self.sessions(of: identity) where await session.push(type: type, body: body) { count += 1 }
        return count
    }
}
