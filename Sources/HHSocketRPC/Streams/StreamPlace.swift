// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink

/// The place where a stream is open.
package struct StreamPlace: Hashable, Sendable {
    package var serial: UInt32
    package var endpoint: Endpoint
}
