// SPDX-License-Identifier: Apache-2.0
public import HHSocketSTOMP
import NIOCore

extension MockPeer where Wire == STOMPWire {
    /// The abilities and the demands of a broker.
    public struct Configuration: Sendable {
        /// The versions that it supports; all by default.
        public var versions: Set<STOMPVersion> = Set(STOMPVersion.allCases)
        /// The passcodes by their logins; nil, the default, admits everyone.
        public var logins: [String: String]?
        /// The accepted values of `host`; nil, the default, accepts any. In 1.1 and 1.2 the header is required in any
        /// case.
        public var virtualHosts: Set<String>?
        /// The smallest interval at which it can send heart-beats, in whole milliseconds; 1 ms by default, so that the
        /// client's wish decides. Zero for none.
        package var heartBeatInterval: Duration = .milliseconds(1)
        /// The interval at which it wishes to receive heart-beats, in whole milliseconds; 1 ms by default, so that the
        /// client's ability decides. Zero for none. The connection is closed after twice the agreed interval without a
        /// byte.
        package var expectedHeartBeatInterval: Duration = .milliseconds(1)
        /// Whether a connection is closed after ERROR, as the specification requires; true by default. RabbitMQ often
        /// does not close it.
        public var closesAfterErrors = true
        /// The limits on received frames.
        package var limits = STOMPLimits()

        /// The default configuration.
        public init() {}

        /// The header that announces the heart-beats.
        var heartBeat: STOMPHeartBeat {
            STOMPHeartBeat(
                sends: Self.milliseconds(self.heartBeatInterval),
                receives: Self.milliseconds(self.expectedHeartBeatInterval)
            )
        }

        private static func milliseconds(_ duration: Duration) -> Int {
            max(0, Int(clamping: TimeAmount(duration).nanoseconds / 1_000_000))
        }
    }

    /// The WebSocket that carries a broker's frames.
    package struct WebSocket: Sendable {
        /// The path of its URL; `/ws` by default.
        package var path: String
        /// Whether the broker sends text messages, even if the content is not UTF-8, as RabbitMQ does; true by default.
        /// Otherwise they are binary. It accepts both kinds, but text only if it is UTF-8.
        package var sendsText = true
        /// The largest number of bytes in a message. Frames that are sent at the same time are joined, and split after
        /// this length, regardless of their ends. Nil, the default: each frame is a separate message.
        package var messageLength: Int?

        /// Creates the options for a path.
        package init(path: String = "/ws") {
            self.path = path
        }
    }

    /// A subscription of a client.
    public struct Subscription: Hashable, Sendable {
        /// The id; nil for one of 1.0 without it.
        package var id: String?
        public package(set) var destination: String
        /// The mode: `auto`, `client` or `client-individual`.
        package var ack: String
        /// The largest number of messages that are delivered and not acknowledged; nil without a limit.
        package var prefetchCount: Int?
        /// The number of messages that are delivered and not acknowledged.
        public package(set) var unacknowledged: Int
    }
}
