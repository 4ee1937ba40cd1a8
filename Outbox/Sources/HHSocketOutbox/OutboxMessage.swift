// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import Foundation
public import HHSocketRPC
public import NIOCore

/// A message that must be delivered.
public struct OutboxMessage: Sendable, Hashable {
    /// The type of the RPC, as in ``/HHSocketRPC/SocketRequest``.
    public var type: UInt32
    /// The payload.
    public var body: ByteBuffer
    /// The topic, such as the name of a conversation, in 1 to 256 bytes of UTF-8. Messages of one topic are sent in the
    /// order in which they were enqueued, each after the one before it was answered.
    public var topic: String
    /// The metadata, as in ``/HHSocketRPC/SocketRequest``; none by default.
    public var metadata: [String: String] = [:]
    /// The time for which it is worth sending, more than zero; nil, the default, for
    /// ``OutboxConfiguration/defaultTimeToLive``.
    public var timeToLive: Duration?
    /// The idempotency key, by which the server recognizes a repeated message; 1 to 128 bytes of UTF-8. A UUID by
    /// default. A key that is already on disk names the same message: see ``Outbox/enqueue(_:)``.
    public var key = UUID().uuidString

    /// - Parameters:
    ///   - type: The type of the RPC.
    ///   - body: The payload; empty by default.
    ///   - topic: The topic, within which messages keep their order.
    ///   - timeToLive: The time for which it is worth sending; nil, the default, for the outbox's.
    public init(type: UInt32, body: ByteBuffer = ByteBuffer(), topic: String, timeToLive: Duration? = nil) {
        self.type = type
        self.body = body
        self.topic = topic
        self.timeToLive = timeToLive
    }

    /// Creates a message whose payload is a text's UTF-8.
    public init(type: UInt32, body: String, topic: String, timeToLive: Duration? = nil) {
        self.init(type: type, body: ByteBuffer(string: body), topic: topic, timeToLive: timeToLive)
    }

    /// Creates a message that calls a method declared in a `.proto`. Only the status of the answer is read.
    ///
    /// - Throws: The error of encoding the message.
    public init<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request,
        topic: String,
        timeToLive: Duration? = nil
    ) throws {
        self.init(type: method.type, body: try ByteBuffer(message: message), topic: topic, timeToLive: timeToLive)
    }

    /// The number of bytes that count towards ``OutboxConfiguration/maximumBytes``.
    var byteCount: Int {
        self.metadata.reduce(self.body.readableBytes + self.topic.utf8.count + self.key.utf8.count) {
            $0 + $1.key.utf8.count + $1.value.utf8.count
        }
    }

    static let maximumTopicLength = 256
    /// The protocol's limit.
    static let maximumKeyLength = 128

    /// The error with which it cannot be stored; nil if it can.
    var refusal: OutboxError? {
        if self.topic.isEmpty || self.topic.utf8.count > Self.maximumTopicLength {
            return OutboxError(
                .invalidMessage,
                message: "a topic has 1 to \(Self.maximumTopicLength) bytes, and this one \(self.topic.utf8.count)"
            )
        }
        if self.key.isEmpty || self.key.utf8.count > Self.maximumKeyLength {
            return OutboxError(
                .invalidMessage,
                message: "a key has 1 to \(Self.maximumKeyLength) bytes, and this one \(self.key.utf8.count)"
            )
        }
        if let timeToLive, timeToLive <= .zero { return Self.tooShort(timeToLive) }
        return nil
    }

    static func tooShort(_ timeToLive: Duration) -> OutboxError {
        OutboxError(.invalidMessage, message: "a time to live must be more than zero; it is \(timeToLive)")
    }
}

/// A message in an outbox, without its body.
public struct OutboxEntry: Sendable, Hashable, Identifiable {
    /// An identifier of a message in its outbox. Later ones are greater, and none is ever reused, even after a restart.
    public struct ID: Hashable, Comparable, Sendable, CustomStringConvertible {
        public let rawValue: Int64

        public init(rawValue: Int64) {
            self.rawValue = rawValue
        }

        public static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
        public var description: String { "\(self.rawValue)" }
    }

    public let id: ID
    public let topic: String
    public let key: String
    public let type: UInt32
    /// The lengths of body, metadata, topic and key in bytes.
    public let byteCount: Int
    /// The time at which it was enqueued, by the clock of this device.
    public let enqueued: Date
    /// The time after which it is no longer sent; nil for never.
    public internal(set) var expires: Date?
    /// The number of attempts that failed after the request was sent, at least in part, including those of earlier
    /// processes.
    public internal(set) var attempts = 0
    /// Whether the server may have received it: an attempt may have reached it, in this process or an earlier one.
    public internal(set) var mayHaveBeenSent: Bool
}

extension OutboxEntry: CustomStringConvertible {
    public var description: String { "message \(self.id) of topic \(self.topic), type \(self.type), key \(self.key)" }
}
#endif
