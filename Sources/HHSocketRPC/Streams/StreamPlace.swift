// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers

/// Where a stream is open.
package struct StreamPlace: Hashable, Sendable {
    package var serial: UInt32
    package var endpoint: Endpoint
}

extension SocketStream {
    /// Where the stream is, or was last, open; nil before.
    package var place: StreamPlace? { self.call.state.withLockedValue { $0.place } }
}
