// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink

/// The serial and the server of an open stream.
package struct StreamAddress: Hashable, Sendable {
    package var serial: UInt32
    package var endpoint: Endpoint
}
