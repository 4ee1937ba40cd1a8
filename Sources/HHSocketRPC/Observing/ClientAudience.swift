// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The receiver of events and pushes that belong to no call: a client's delegate, for the owners below the client. They
/// know neither of the two, whose names would join them to the client's cycle of files.
protocol ClientAudience: AnyObject, Sendable {
    /// Returns the call of the delegate with `event`; nil without a delegate.
    func callback(for event: SocketEvent) -> SocketCallback?
    /// Returns the call of the delegate with `push`, which then reports to `receipt`; nil without a delegate.
    func callback(for push: SocketPush, _ receipt: PushReceipt) -> SocketCallback?
}
