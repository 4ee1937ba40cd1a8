// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The pushes of one kind of message that ``SocketClient/pushes(_:buffering:)`` subscribes to.
///
/// A push that cannot be decoded is skipped, logged as a warning, and counted in ``ClientStatistics/malformedPushes``.
/// Otherwise this sequence behaves like ``SocketPushes``.
public struct MessagePushes<Push: PushMessage>: AsyncSequence, Sendable {
    public typealias Failure = Never

    private enum Source: Sendable {
        case client(SocketPushes, PushDecoding)
        case mock(AsyncStream<Push>)
    }

    private let source: Source

    init(_ pushes: SocketPushes, _ decoding: PushDecoding) {
        self.source = .client(pushes, decoding)
    }

    /// Creates the pushes of a mock client.
    init(_ stream: AsyncStream<Push>) {
        self.source = .mock(stream)
    }

    public struct Iterator: AsyncIteratorProtocol {
        fileprivate enum Source {
            case client(SocketPushes.Iterator, PushDecoding)
            case mock(AsyncStream<Push>.Iterator)
        }

        fileprivate var source: Source

        /// Waits for and returns the next push; nil once the subscription has ended.
        public mutating func next() async -> Push? { await self.next(isolation: nil) }

        /// Waits where the caller runs, and returns the next push; nil once the subscription has ended.
        public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async -> Push? {
            switch self.source {
            case .client(var iterator, let decoding):
                while let push = await iterator.next(isolation: actor) {
                    if let message: Push = decoding.message(of: push) { return message }
                }
                return nil
            case .mock(var iterator):
                let push = await iterator.next(isolation: actor)
                self.source = .mock(iterator)
                return push
            }
        }
    }

    public func makeAsyncIterator() -> Iterator {
        switch self.source {
        case .client(let pushes, let decoding): Iterator(source: .client(pushes.makeAsyncIterator(), decoding))
        case .mock(let stream): Iterator(source: .mock(stream.makeAsyncIterator()))
        }
    }
}

/// Decodes pushes within a client's limits, and reports those that cannot be decoded to it.
struct PushDecoding: Sendable {
    private weak let center: PushCenter?
    private let limits: MessageLimits

    init(_ center: PushCenter, _ limits: MessageLimits) {
        self.center = center
        self.limits = limits
    }

    /// The push's message; nil if the payload is not such a message.
    func message<Message: MessageBody>(of push: SocketPush) -> Message? {
        do {
            return try push.body.message(limits: self.limits)
        } catch {
            self.center?.isMalformed(push.type, error)
            return nil
        }
    }
}

extension SocketClient {
    /// Subscribes to the pushes of one kind of message, from now on. Each call makes a new subscription, which gets
    /// every push.
    ///
    /// ```swift
    /// for await note in client.pushes(Chat_Note.self) { … }
    /// ```
    ///
    /// - Parameters:
    ///   - type: The message, which has a push type: `option (hhsocket.push_type) = 2001;`.
    ///   - policy: The treatment of waiting pushes; by default the oldest are dropped once 1,024 wait.
    public func pushes<Push: PushMessage>(
        _ type: Push.Type,
        buffering policy: PushBufferingPolicy = .default
    ) -> MessagePushes<Push> {
        MessagePushes(
            self.pushes(ofType: Push.pushType, buffering: policy),
            PushDecoding(self.host.pushes, self.messageLimits)
        )
    }

    /// Calls `handler` with each push of one kind of message from now on, like ``onPush(ofType:buffering:perform:)``. A
    /// push that cannot be decoded is reported as an error that the handler threw.
    @discardableResult
    public func onPush<Push: PushMessage>(
        _ type: Push.Type,
        buffering policy: PushBufferingPolicy = .default,
        perform handler: @escaping @Sendable (Push) async throws -> Void
    ) -> PushSubscription {
        let limits = self.messageLimits
        return self.onPush(ofType: Push.pushType, buffering: policy) { push in
            try await handler(push.body.message(limits: limits))
        }
    }
}
