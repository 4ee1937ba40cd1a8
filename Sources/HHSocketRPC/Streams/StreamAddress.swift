// SPDX-License-Identifier: Apache-2.0
package import HHSocket

/// The place where a stream is open.
package struct StreamAddress: Hashable, Sendable {
    package var serial: UInt32
    package var endpoint: Endpoint
}
