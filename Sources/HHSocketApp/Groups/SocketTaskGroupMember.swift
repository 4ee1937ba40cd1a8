// SPDX-License-Identifier: Apache-2.0
/// A member of a ``SocketTaskGroup``: anything that can be started and given up, such as a ``/HHSocketRPC/SocketTask``
/// or another group.
///
/// Both methods may be called by any thread, more than once and in any order: a group that is cancelled while it starts
/// may call ``resume()`` after ``cancel()``, which must not start anything then. Neither is called under a lock of the
/// group.
public protocol SocketTaskGroupMember: Sendable {
    func resume()

    /// Cancels the member. Its end is reported like any other, even if it was never resumed.
    func cancel()

    /// The progress of the member until it ends, from 0 to 1. 0 by default, for members that do not report any.
    var fractionCompleted: Double { get }
}

extension SocketTaskGroupMember {
    public var fractionCompleted: Double { 0 }
}

extension SocketTask: SocketTaskGroupMember {
    /// The share of the expected bytes of both directions that have been sent and received, from 0 to 1. It is 1 only
    /// once the task is complete, and falls when a retry begins.
    public var fractionCompleted: Double {
        guard self.state != .completed else { return 1 }
        // One unit more than there are bytes, as in `progress`: only the completion makes it 1.
        let expected = self.countOfBytesExpectedToSend + (self.countOfBytesExpectedToReceive ?? 0) + 1
        return min(1, Double(self.countOfBytesSent + self.countOfBytesReceived) / Double(expected))
    }
}
