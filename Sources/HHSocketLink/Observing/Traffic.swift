// SPDX-License-Identifier: Apache-2.0
/// The traffic of one link, or of several.
package struct Traffic: Equatable, Sendable {
    package var bytesSent = 0
    package var bytesReceived = 0
    package var framesSent = 0
    package var framesReceived = 0

    package init() {}

    /// Returns the difference from an earlier count.
    func since(_ earlier: Traffic) -> Traffic {
        var change = self
        change.bytesSent -= earlier.bytesSent
        change.bytesReceived -= earlier.bytesReceived
        change.framesSent -= earlier.framesSent
        change.framesReceived -= earlier.framesReceived
        return change
    }
}
