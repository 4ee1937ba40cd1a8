// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The cost of a request from its admission until its answer is taken. A number and no ``/HHSocket/Hold``: requests are
/// added to the sum of their session, which is charged once a turn.
struct RequestCost: Hashable, Sendable {
    static let none = RequestCost(bytes: 0)

    let bytes: Int

    private init(bytes: Int) {
        self.bytes = bytes
    }

    /// - Parameters:
    ///   - payload: The memory of the body, which the request owns, in bytes.
    ///   - extras: What it brings beside its body; nil if there is nothing.
    init(payload: Int, _ extras: ServerContext.Extras?) {
        self.bytes = ConnectionCost.request + payload + (extras?.memory ?? 0)
    }
}
