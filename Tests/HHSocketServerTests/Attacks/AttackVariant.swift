// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocket
import HHSocketTesting
import Logging
import TestSupport

@testable import HHSocketServer

extension ServerUnderAttack {
    /// The difference of a server under attack, or of the way to it, from the default.
    enum Variant: String, CaseIterable, Sendable {
        case plain
        /// All clients connect over TLS, to a second listener.
        case tls
        case answersInOrder
        /// All clients connect over WebSocket, to the port that accepts plain TCP too.
        case framesOverWebSocket
        /// All clients connect to WebSockets whose messages are echoed.
        case messages
        /// Hello is required, with a token whose check takes a second unless it is the honest clients' token. The
        /// attackers have another, or none.
        case strangers
        /// The limit of requests in flight is adaptive.
        case adaptive
        /// The process may have 256 file descriptors.
        case fewDescriptors
        /// The log is a pipe without a reader.
        case unreadLog
        /// The log is a pipe without a reader, and its level is `debug`, which has a line for each connection.
        case unreadDebugLog
        /// The attackers connect over TCP, TLS and WebSocket at the same time.
        case everything

        /// The path that is attacked.
        var path: String? {
            switch self {
            case .framesOverWebSocket: ServerUnderAttack.framesPath
            case .messages: ServerUnderAttack.messagesPath
            default: nil
            }
        }

        var isWebSocket: Bool { self.path != nil }
        var hasWebSockets: Bool { self.isWebSocket || self == .everything }
        var hasTLS: Bool { self == .tls || self == .everything }
        /// The level of a log without a reader; nil for the default log.
        var levelOfUnreadLog: Logger.Level? {
            switch self {
            case .unreadLog: .info
            case .unreadDebugLog: .debug
            default: nil
            }
        }
        /// The number of descriptors of the server's process; nil for the system's limit.
        var descriptors: Int? { self == .fewDescriptors ? 256 : nil }

        func configuration() throws -> SocketServer.Configuration {
            var configuration = SocketServer.Configuration()
            if self.hasWebSockets {
                let url = "tcp+ws://127.0.0.1:0\(ServerUnderAttack.framesPath)"
                configuration.listeners = [try ServerListener(url: url)]
            }
            if self.hasTLS {
                let identity = try TestCertificate(.server).identity
                configuration.listeners.append(ServerListener(tls: ServerTLS(identity: identity)))
            }
            switch self {
            case .answersInOrder:
                configuration.answersInOrder = true
            case .adaptive:
                configuration.limits.concurrency = AdaptiveConcurrency()
            case .strangers:
                configuration.hello.isRequired = true
                configuration.hello.authenticate = { token, _ in
                    if token == Array(ServerUnderAttack.knownToken.utf8) { return "somebody known" }
                    try await Task.sleep(for: .seconds(1))
                    throw StatusError(.noPermission)
                }
            default:
                break
            }
            return configuration
        }

        /// The way of honest clients to the server.
        func transport() throws -> HonestClients.Transport {
            switch self {
            case .tls: .tls(try Self.clientTLS())
            case .framesOverWebSocket: .framesOverWebSocket(path: ServerUnderAttack.framesPath)
            case .messages: .messages(path: ServerUnderAttack.messagesPath)
            default: .tcp
            }
        }

        /// The token of honest clients' hellos, if hello is required.
        var token: String? { self == .strangers ? ServerUnderAttack.knownToken : nil }

        static func clientTLS() throws -> ClientTLS {
            var tls = ClientTLS()
            tls.trust = try TestAuthority().trust
            return tls
        }
    }
}
#endif
