// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers

/// The place where a stream is open.
package struct StreamPlace: Hashable, Sendable {
    package var serial: UInt32
    package var endpoint: Endpoint
}

extension SocketStream {
    /// The place where the stream is, or was last, open; nil before.
    package var place: StreamPlace? { self.call.state.withLockedValue { $0.place } }
}
