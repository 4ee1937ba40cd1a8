/// A member of a ``SocketTaskGroup``: anything that can be started and given up, such as a ``SocketTask`` or another
/// group.
///
/// Both may be called by any thread, more than once and in any order: a group that is cancelled while it starts may
/// call ``resume()`` after ``cancel()``, which must not start anything then. Neither is called under a lock of the
/// group's.
public protocol SocketTaskGroupMember: Sendable {
    func resume()

    /// Cancels it. Its end is reported like any other, also if it was never resumed.
    func cancel()

    /// How far it has come, from 0 to 1, before it has ended. 0 by default, for what cannot tell.
    var fractionCompleted: Double { get }
}

extension SocketTaskGroupMember {
    public var fractionCompleted: Double { 0 }
}

extension SocketTask: SocketTaskGroupMember {
    /// The bytes sent and received of those that are expected in both directions, from 0 to 1. It is 1 only once the
    /// task is complete, and falls when a retry begins.
    public var fractionCompleted: Double {
        guard self.state != .completed else { return 1 }
        // One more than is there, as in `progress`: the end alone makes it whole.
        let expected = self.countOfBytesExpectedToSend + (self.countOfBytesExpectedToReceive ?? 0) + 1
        return min(1, Double(self.countOfBytesSent + self.countOfBytesReceived) / Double(expected))
    }
}
