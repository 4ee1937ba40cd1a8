// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The receiver of a call's result that has receivers of its own: a stream.
protocol CallParty: AnyObject, Sendable {
    /// The call has ended. Called once, on the socket thread, or on any if that has ended.
    ///
    /// - Parameter resume: Resumes a waiter.
    func ended(_ end: Result<SocketResponse, SocketError>, _ resume: (TurnWaiter) -> Void)
}
