#if Outbox
public import Foundation
public import HHSocketRPC
public import NIOCore

/// A message that must leave.
public struct OutboxMessage: Sendable, Hashable {
    /// The RPC's name, as in ``HHSocketRPC/SocketRequest``.
    public var type: UInt32
    /// The payload.
    public var body: ByteBuffer
    /// Messages of one topic leave in the order in which they were enqueued, each after the one before it was answered.
    /// 1 to 256 bytes of UTF-8, such as the name of a conversation.
    public var topic: String
    /// What the server receives beside the body, as in ``HHSocketRPC/SocketRequest``; nothing by default.
    public var metadata: [String: String] = [:]
    /// For how long it is worth sending; nil, the default, for ``OutboxConfiguration/defaultTimeToLive``. More than
    /// zero.
    public var timeToLive: Duration?
    /// What the server knows it by, however often it comes; 1 to 128 bytes of UTF-8. A UUID by default. A key that is
    /// on disk already names the same message: see ``Outbox/enqueue(_:)``.
    public var key = UUID().uuidString

    /// - Parameters:
    ///   - type: The RPC's name.
    ///   - body: The payload; empty by default.
    ///   - topic: Whose order it keeps.
    ///   - timeToLive: For how long it is worth sending; nil, the default, for the outbox's.
    public init(type: UInt32, body: ByteBuffer = ByteBuffer(), topic: String, timeToLive: Duration? = nil) {
        self.type = type
        self.body = body
        self.topic = topic
        self.timeToLive = timeToLive
    }

    /// A message whose payload is a text's UTF-8.
    public init(type: UInt32, body: String, topic: String, timeToLive: Duration? = nil) {
        self.init(type: type, body: ByteBuffer(string: body), topic: topic, timeToLive: timeToLive)
    }

    /// A call of a method, as a `.proto` declares it. What the server answers is not read, beyond its status.
    ///
    /// - Throws: What the message's writer throws.
    public init<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request,
        topic: String,
        timeToLive: Duration? = nil
    ) throws {
        self.init(type: method.type, body: try ByteBuffer(message: message), topic: topic, timeToLive: timeToLive)
    }

    /// What it takes of ``OutboxConfiguration/maximumBytes``.
    var byteCount: Int {
        self.metadata.reduce(self.body.readableBytes + self.topic.utf8.count + self.key.utf8.count) {
            $0 + $1.key.utf8.count + $1.value.utf8.count
        }
    }

    static let maximumTopicLength = 256
    /// As the protocol has it.
    static let maximumKeyLength = 128

    /// Why it cannot be kept.
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

/// What an outbox knows of a message that it keeps.
public struct OutboxEntry: Sendable, Hashable, Identifiable {
    /// Names a message in its outbox. Later ones are greater, and none is ever given again, also after a restart.
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
    /// By the clock of this device.
    public let enqueued: Date
    /// From when on it is not sent any more; nil: it waits for ever.
    public internal(set) var expires: Date?
    /// The number of attempts that failed after the request had left, at least in part; those of earlier processes
    /// included.
    public internal(set) var attempts = 0
    /// Whether the server may have got it: an attempt may have reached it, in this process or in one before.
    public internal(set) var mayHaveBeenSent: Bool
}

extension OutboxEntry: CustomStringConvertible {
    public var description: String { "message \(self.id) of topic \(self.topic), type \(self.type), key \(self.key)" }
}
#endif
