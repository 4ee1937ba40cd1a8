import Foundation
import NIOCore

/// Why a call, a connection or a setting failed.
///
/// Compare ``code``; read ``message``, which says what failed, where, why, and what can be done.
public struct SocketError: Error, Sendable {
    /// What kind of failure it is. New codes may be added; always have a default case.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        fileprivate enum Base: Hashable, Sendable {
            case named(StaticName)
            case server(UInt32)
        }

        fileprivate enum StaticName: String, Hashable, Sendable {
            case serverLostConnection, illegalLength, lostPacket, illegalFormat, notModified, undefinedType
            case protobufFailed, database, unknown, noPermission, deadlineExceeded, cancelledByServer
            case overloaded, draining, emptyProtobuf
            case notConnected, timeout, networkUnreachable, cancelled, connectionLost
            case connectionRefused, connectTimeout, hostNotFound, proxyFailed, tlsFailed, connectFailed
            case handshakeRefused, handshakeTimeout, noServerReachable
            case checksumMismatch, frameTooLarge, protocolViolation
            case tooManyInFlight, queueFull
            case invalidArgument, interceptorFailed, featureNotAgreed
            case bindFailed
            case decodingFailed, noData, noMoreData
        }

        fileprivate var base: Base

        private init(named name: StaticName) { self.base = .named(name) }
        private init(serverStatus: UInt32) { self.base = .server(serverStatus) }

        /// The code of an answer with this status, which is not ``Status/ok``.
        public init(_ status: Status) {
            self =
                switch status {
                case .serverLostConnection: .serverLostConnection
                case .illegalLength: .illegalLength
                case .lostPacket: .lostPacket
                case .illegalFormat: .illegalFormat
                case .notModified: .notModified
                case .undefinedType: .undefinedType
                case .protobufFailed: .protobufFailed
                case .database: .database
                case .unknown: .unknown
                case .noPermission: .noPermission
                case .deadlineExceeded: .deadlineExceeded
                case .cancelledByServer: .cancelledByServer
                case .emptyProtobuf: .emptyProtobuf
                case .overloaded: .overloaded
                case .draining: .draining
                default: .init(serverStatus: status.rawValue)
                }
        }

        // MARK: The server's word

        /// Status 300.
        public static let serverLostConnection = Self(named: .serverLostConnection)
        /// Status 301.
        public static let illegalLength = Self(named: .illegalLength)
        /// Status 302: the server found the request's checksum wrong.
        public static let lostPacket = Self(named: .lostPacket)
        /// Status 303.
        public static let illegalFormat = Self(named: .illegalFormat)
        /// Status 304.
        public static let notModified = Self(named: .notModified)
        /// Status 401: no handler for this type; not executed.
        public static let undefinedType = Self(named: .undefinedType)
        /// Status 402.
        public static let protobufFailed = Self(named: .protobufFailed)
        /// Status 403.
        public static let database = Self(named: .database)
        /// Status 404.
        public static let unknown = Self(named: .unknown)
        /// Status 405.
        public static let noPermission = Self(named: .noPermission)
        /// Status 408.
        public static let deadlineExceeded = Self(named: .deadlineExceeded)
        /// Status 409.
        public static let cancelledByServer = Self(named: .cancelledByServer)
        /// Status 456.
        public static let emptyProtobuf = Self(named: .emptyProtobuf)
        /// Status 503: refused for load; not executed.
        public static let overloaded = Self(named: .overloaded)
        /// Status 504: the server is shutting down; not executed.
        public static let draining = Self(named: .draining)
        /// Any other status.
        public static func server(_ status: Status) -> Self { Self(serverStatus: status.rawValue) }

        // MARK: Found here

        /// There is no connection to the server.
        public static let notConnected = Self(named: .notConnected)
        /// No answer in time.
        public static let timeout = Self(named: .timeout)
        /// The network cannot reach the server.
        public static let networkUnreachable = Self(named: .networkUnreachable)
        /// The caller cancelled, or the client was released.
        public static let cancelled = Self(named: .cancelled)
        /// The connection ended while the call was in flight.
        public static let connectionLost = Self(named: .connectionLost)
        /// The host is there, but nothing listens on the port.
        public static let connectionRefused = Self(named: .connectionRefused)
        /// The server did not accept the connection in time.
        public static let connectTimeout = Self(named: .connectTimeout)
        /// The host name has no address.
        public static let hostNotFound = Self(named: .hostNotFound)
        /// The proxy is there, but did not connect us to the server; ``SocketError/underlying`` is a ``ProxyFailure``.
        /// A proxy that is not there has the same codes as a server that is not, and a message that says so.
        public static let proxyFailed = Self(named: .proxyFailed)
        /// TLS could not be agreed on, or one end did not accept the other; ``SocketError/underlying`` is a
        /// ``TLSFailure``.
        public static let tlsFailed = Self(named: .tlsFailed)
        /// Connecting failed in another way; see ``SocketError/underlying``.
        public static let connectFailed = Self(named: .connectFailed)
        /// The ``HandshakeGate`` refused the connection; see ``SocketError/underlying``.
        public static let handshakeRefused = Self(named: .handshakeRefused)
        /// The ``HandshakeGate`` did not return in time.
        public static let handshakeTimeout = Self(named: .handshakeTimeout)
        /// Every server was tried for as many rounds as allowed; ``SocketError/underlying`` is ``UnreachableServers``.
        public static let noServerReachable = Self(named: .noServerReachable)
        /// The answer came with a wrong checksum.
        public static let checksumMismatch = Self(named: .checksumMismatch)
        /// A frame is larger than `maximumPayloadLength`.
        public static let frameTooLarge = Self(named: .frameTooLarge)
        /// The peer sent something the protocol does not allow.
        public static let protocolViolation = Self(named: .protocolViolation)
        /// Every serial, or as many as `maximumInFlight` allows, is in flight.
        public static let tooManyInFlight = Self(named: .tooManyInFlight)
        /// As many calls as allowed are waiting for a connection.
        public static let queueFull = Self(named: .queueFull)
        /// A setting or a request cannot work; see the message.
        public static let invalidArgument = Self(named: .invalidArgument)
        /// An interceptor threw an error of its own; see ``SocketError/underlying``.
        public static let interceptorFailed = Self(named: .interceptorFailed)
        /// The request asks for something that the connection's two ends have not agreed on by hello; not sent.
        public static let featureNotAgreed = Self(named: .featureNotAgreed)
        /// A server cannot listen on its address.
        public static let bindFailed = Self(named: .bindFailed)
        /// The answer came, but cannot be made into what was asked for; see ``SocketError/underlying``.
        public static let decodingFailed = Self(named: .decodingFailed)
        /// The first page of a list is empty: there is nothing to show.
        public static let noData = Self(named: .noData)
        /// A later page of a list is empty: there is nothing more to show.
        public static let noMoreData = Self(named: .noMoreData)

        /// The status behind a code that has no name of its own.
        public var serverStatus: Status? {
            if case .server(let status) = self.base { Status(rawValue: status) } else { nil }
        }

        /// The status of answers that fail with this code; nil for what is found on this side alone.
        public var status: Status? {
            switch self.base {
            case .server(let status): Status(rawValue: status)
            case .named(let name):
                switch name {
                case .serverLostConnection: .serverLostConnection
                case .illegalLength: .illegalLength
                case .lostPacket: .lostPacket
                case .illegalFormat: .illegalFormat
                case .notModified: .notModified
                case .undefinedType: .undefinedType
                case .protobufFailed: .protobufFailed
                case .database: .database
                case .unknown: .unknown
                case .noPermission: .noPermission
                case .deadlineExceeded: .deadlineExceeded
                case .cancelledByServer: .cancelledByServer
                case .emptyProtobuf: .emptyProtobuf
                case .overloaded: .overloaded
                case .draining: .draining
                default: nil
                }
            }
        }

        /// The code's name, such as `timeout`; an unlisted status is its number.
        public var description: String {
            switch self.base {
            case .named(let name): name.rawValue
            case .server(let status): String(status)
            }
        }

        /// Whether it is the code of an answer that says that the server did not execute the request.
        fileprivate var saysNotExecuted: Bool {
            self.status.map { !$0.mayHaveBeenExecuted } ?? false
        }
    }

    /// How far a request got.
    public enum Delivery: Hashable, Sendable {
        /// No byte of it left.
        case notSent
        /// Bytes left and no answer came, in this attempt or one before: the server may have run it.
        case sentUnknown
        /// The server said so.
        case answered
    }

    private final class Storage: @unchecked Sendable {
        // Proof: a storage is mutated only through the one SocketError that uniquely references it.
        var code: Code
        var message: String
        var underlying: (any Error)?
        var endpoint: Endpoint?
        var serial: UInt32?
        var delivery: Delivery
        var body: ByteBuffer?
        var metadata: [String: String]

        init(
            code: Code,
            message: String,
            underlying: (any Error)?,
            endpoint: Endpoint?,
            serial: UInt32?,
            delivery: Delivery,
            body: ByteBuffer?,
            metadata: [String: String]
        ) {
            self.code = code
            self.message = message
            self.underlying = underlying
            self.endpoint = endpoint
            self.serial = serial
            self.delivery = delivery
            self.body = body
            self.metadata = metadata
        }

        func copy() -> Storage {
            Storage(
                code: self.code,
                message: self.message,
                underlying: self.underlying,
                endpoint: self.endpoint,
                serial: self.serial,
                delivery: self.delivery,
                body: self.body,
                metadata: self.metadata
            )
        }
    }

    // One word, so that a Result of it stays small on the path of every call.
    private var storage: Storage

    public init(
        _ code: Code,
        message: String,
        underlying: (any Error)? = nil,
        endpoint: Endpoint? = nil,
        serial: UInt32? = nil,
        delivery: Delivery = .notSent,
        body: ByteBuffer? = nil
    ) {
        self.storage = Storage(
            code: code,
            message: message,
            underlying: underlying,
            endpoint: endpoint,
            serial: serial,
            delivery: delivery,
            body: body,
            metadata: [:]
        )
    }

    private mutating func uniqueStorage() -> Storage {
        if !isKnownUniquelyReferenced(&self.storage) { self.storage = self.storage.copy() }
        return self.storage
    }

    public var code: Code {
        get { self.storage.code }
        set { self.uniqueStorage().code = newValue }
    }

    /// What failed, where, why, and what can be done, in one line.
    public var message: String {
        get { self.storage.message }
        set { self.uniqueStorage().message = newValue }
    }

    /// The error that caused this one: for a call that found no connection, the last connect error.
    public var underlying: (any Error)? {
        get { self.storage.underlying }
        set { self.uniqueStorage().underlying = newValue }
    }

    /// The server concerned.
    public var endpoint: Endpoint? {
        get { self.storage.endpoint }
        set { self.uniqueStorage().endpoint = newValue }
    }

    /// The serial of the call concerned, if it was given one.
    public var serial: UInt32? {
        get { self.storage.serial }
        set { self.uniqueStorage().serial = newValue }
    }

    /// How far the request got.
    public var delivery: Delivery {
        get { self.storage.delivery }
        set { self.uniqueStorage().delivery = newValue }
    }

    /// The payload of an answer with an error status.
    public var body: ByteBuffer? {
        get { self.storage.body }
        set { self.uniqueStorage().body = newValue }
    }

    /// The metadata of an answer with an error status, by name; empty where there is none.
    public var metadata: [String: String] {
        get { self.storage.metadata }
        set { self.uniqueStorage().metadata = newValue }
    }

    /// Whether it is known that the server did not run the request, so that sending it again is safe: no byte of it
    /// left, or the answer says so (``Status/mayHaveBeenExecuted``).
    public var notExecuted: Bool {
        self.delivery == .notSent || (self.delivery == .answered && self.code.saysNotExecuted)
    }
}

extension SocketError: LocalizedError {
    public var errorDescription: String? { self.message }
}

extension SocketError: CustomStringConvertible {
    public var description: String { "\(self.code): \(self.message)" }
}
