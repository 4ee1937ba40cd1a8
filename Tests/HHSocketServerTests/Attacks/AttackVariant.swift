// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocket
import HHSocketTesting
import Logging
import TestSupport

@testable import HHSocketServer

extension ServerUnderAttack {
    /// How a server under attack, or the way to it, differs from the default.
    enum Variant: String, CaseIterable, Sendable {
        case plain
        /// Everybody comes over TLS, to a second listener.
        case tls
        case answersInOrder
        /// Everybody comes over WebSocket, to the port that takes plain TCP too.
        case framesOverWebSocket
        /// Everybody comes to WebSockets whose messages are echoed.
        case messages
        /// Clients must say hello, with a token that takes a second to check if it is not the honest ones'. The
        /// attackers have another, or none.
        case strangers
        /// The number of requests that may be in flight adapts itself.
        case adaptive
        /// The process may have 256 file descriptors.
        case fewDescriptors
        /// The log is a pipe that nobody reads.
        case unreadLog
        /// So it is, and the log's level is `debug`, in which each connection has a line.
        case unreadDebugLog
        /// The attackers come over TCP, TLS and WebSocket at once.
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
        /// The level of a log that nobody reads; nil for the default log.
        var levelOfUnreadLog: Logger.Level? {
            switch self {
            case .unreadLog: .info
            case .unreadDebugLog: .debug
            default: nil
            }
        }
        /// The number of descriptors of the server's process; nil for as many as the system allows.
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

        /// The token of honest clients' hellos, if they have to say one.
        var token: String? { self == .strangers ? ServerUnderAttack.knownToken : nil }

        static func clientTLS() throws -> ClientTLS {
            var tls = ClientTLS()
            tls.trust = try TestAuthority().trust
            return tls
        }
    }
}
#endif
