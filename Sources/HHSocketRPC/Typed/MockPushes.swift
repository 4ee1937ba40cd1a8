// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// The pushes of a mock client. A push that is sent here reaches every subscriber of its type.
public final class MockPushes: Sendable {
    private struct Subscribers {
        var next = 0
        var byType: [UInt32: [Int: @Sendable (any PushMessage) -> Void]] = [:]
    }

    private let subscribers = NIOLockedValueBox(Subscribers())

    public init() {}

    /// Sends a push to all present subscribers of its type.
    public func send(_ push: some PushMessage) {
        let subscribers = self.subscribers.withLockedValue { $0.byType[type(of: push).pushType] ?? [:] }
        for subscriber in subscribers.values { subscriber(push) }
    }

    /// Returns the sequence for a mock's `pushes`. Its buffer has no limit.
    public func pushes<Push: PushMessage>(_ type: Push.Type) -> MessagePushes<Push> {
        let (stream, continuation) = AsyncStream.makeStream(of: Push.self)
        let number = self.subscribers.withLockedValue { subscribers in
            subscribers.next += 1
            subscribers.byType[Push.pushType, default: [:]][subscribers.next] = { push in
                if let push = push as? Push { continuation.yield(push) }
            }
            return subscribers.next
        }
        continuation.onTermination = { [weak self] _ in
            self?.subscribers.withLockedValue { $0.byType[Push.pushType]?[number] = nil }
        }
        return MessagePushes(stream)
    }
}
