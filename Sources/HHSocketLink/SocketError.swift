// SPDX-License-Identifier: Apache-2.0
public import HHSocketFoundation
import NIOCore

/// The failure of a call, a connection or a setting.
///
/// Compare ``code``; ``message`` describes what failed, where, why, and what to do.
public struct SocketError: Error, Sendable {
    /// The kind of failure. New codes may be added; always have a default case.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Base: Hashable, Sendable {
            case status(Status)
            case found(Name)
        }

        /// The names of failures found on this side.
        private enum Name: String, Hashable, Sendable {
            case notConnected, timeout, networkUnreachable, cancelled, connectionLost
            case connectionRefused, connectTimeout, hostNotFound, proxyFailed, tlsFailed, connectFailed
            case handshakeRefused, handshakeTimeout, noServerReachable
            case checksumMismatch, frameTooLarge, protocolViolation, brokerError
            case tooManyInFlight, queueFull
            case invalidArgument, interceptorFailed, featureNotAgreed
            case bindFailed
            case decodingFailed, noData, noMoreData
        }

        private var base: Base

        private init(_ name: Name) { self.base = .found(name) }

        /// The code of an answer with this status, which is not ``Status/ok``.
        package init(_ status: Status) { self.base = .status(status) }

        // MARK: The server's word

        /// Status 300.
        public static let serverLostConnection = Self(Status.serverLostConnection)
        /// Status 301.
        public static let illegalLength = Self(Status.illegalLength)
        /// Status 302: the server found the request's checksum wrong.
        public static let lostPacket = Self(Status.lostPacket)
        /// Status 303.
        public static let illegalFormat = Self(Status.illegalFormat)
        /// Status 304.
        public static let notModified = Self(Status.notModified)
        /// Status 401: no handler for this type; not executed.
        public static let undefinedType = Self(Status.undefinedType)
        /// Status 402.
        public static let protobufFailed = Self(Status.protobufFailed)
        /// Status 403.
        public static let database = Self(Status.database)
        /// Status 404.
        public static let unknown = Self(Status.unknown)
        /// Status 405.
        public static let noPermission = Self(Status.noPermission)
        /// Status 408.
        public static let deadlineExceeded = Self(Status.deadlineExceeded)
        /// Status 409.
        public static let cancelledByServer = Self(Status.cancelledByServer)
        /// Status 456.
        public static let emptyProtobuf = Self(Status.emptyProtobuf)
        /// Status 503: refused for load; not executed.
        public static let overloaded = Self(Status.overloaded)
        /// Status 504: the server is shutting down; not executed.
        public static let draining = Self(Status.draining)
        /// The code of an answer with this status, which is not ``Status/ok``: one of the codes above, or that of a
        /// status without its own name.
        public static func server(_ status: Status) -> Self { Self(status) }

        // MARK: Found here

        /// There is no connection to the server.
        public static let notConnected = Self(Name.notConnected)
        /// No answer in time.
        public static let timeout = Self(Name.timeout)
        /// The network cannot reach the server.
        public static let networkUnreachable = Self(Name.networkUnreachable)
        /// The caller cancelled, or the client was released.
        public static let cancelled = Self(Name.cancelled)
        /// The connection ended while the call was in flight.
        public static let connectionLost = Self(Name.connectionLost)
        /// The host answers, but nothing listens on the port.
        public static let connectionRefused = Self(Name.connectionRefused)
        /// The server did not accept the connection in time.
        public static let connectTimeout = Self(Name.connectTimeout)
        /// The host name has no address.
        public static let hostNotFound = Self(Name.hostNotFound)
        /// The proxy answers, but did not connect to the server; ``SocketError/underlying`` is a ``ProxyFailure``. If
        /// the proxy itself cannot be reached, the codes are those for a server, and the message names the proxy.
        public static let proxyFailed = Self(Name.proxyFailed)
        /// TLS could not be agreed on, or one end did not accept the other; ``SocketError/underlying`` is a
        /// ``TLSFailure``.
        public static let tlsFailed = Self(Name.tlsFailed)
        /// Connecting failed in another way; see ``SocketError/underlying``.
        public static let connectFailed = Self(Name.connectFailed)
        /// The ``HandshakeGate`` refused the connection; see ``SocketError/underlying``.
        public static let handshakeRefused = Self(Name.handshakeRefused)
        /// The ``HandshakeGate`` did not return in time.
        public static let handshakeTimeout = Self(Name.handshakeTimeout)
        /// Every server was tried for as many rounds as allowed; ``SocketError/underlying`` is ``UnreachableServers``.
        public static let noServerReachable = Self(Name.noServerReachable)
        /// The answer has a wrong checksum.
        public static let checksumMismatch = Self(Name.checksumMismatch)
        /// A frame is larger than `maximumPayloadLength`.
        public static let frameTooLarge = Self(Name.frameTooLarge)
        /// The peer sent something that the protocol does not allow.
        public static let protocolViolation = Self(Name.protocolViolation)
        /// A broker of STOMP has answered with ERROR; ``SocketError/underlying`` is a `STOMPServerError`.
        public static let brokerError = Self(Name.brokerError)
        /// Every serial is in flight, or as many calls as `maximumInFlight` allows.
        public static let tooManyInFlight = Self(Name.tooManyInFlight)
        /// The limit of calls that wait for a connection, or of bytes that wait to be sent, is reached.
        public static let queueFull = Self(Name.queueFull)
        /// A setting or a request cannot work; see the message.
        public static let invalidArgument = Self(Name.invalidArgument)
        /// An interceptor threw another error; see ``SocketError/underlying``.
        public static let interceptorFailed = Self(Name.interceptorFailed)
        /// The request requires a feature that the connection's two ends have not agreed on by hello; not sent.
        public static let featureNotAgreed = Self(Name.featureNotAgreed)
        /// A server cannot listen on its address.
        public static let bindFailed = Self(Name.bindFailed)
        /// The answer cannot be decoded as the requested type; see ``SocketError/underlying``.
        public static let decodingFailed = Self(Name.decodingFailed)
        /// The first page of a list is empty: there is nothing to show.
        public static let noData = Self(Name.noData)
        /// A later page of a list is empty: there is nothing more to show.
        public static let noMoreData = Self(Name.noMoreData)

        /// The status of a code without its own name.
        public var serverStatus: Status? { self.status.flatMap { $0.name == nil ? $0 : nil } }

        /// The status of answers that fail with this code; nil for failures found on this side.
        public var status: Status? {
            if case .status(let status) = self.base { status } else { nil }
        }

        /// The code's name, such as `timeout`; an unlisted status is its number.
        public var description: String {
            switch self.base {
            case .status(let status): status.name ?? status.description
            case .found(let name): name.rawValue
            }
        }

        /// Whether it is the code of an answer by which the server did not execute the request.
        fileprivate var saysNotExecuted: Bool {
            self.status.map { !$0.mayHaveBeenExecuted } ?? false
        }
    }

    /// The progress that a request had made.
    public enum Delivery: Hashable, Sendable {
        /// No byte of it was sent.
        case notSent
        /// Bytes were sent and no answer arrived, in this attempt or an earlier one: the server may have run it.
        case sentUnknown
        /// The server answered it.
        case answered
    }

    private struct Details: Sendable {
        var code: Code
        var message: String
        var underlying: (any Error)?
        var endpoint: Endpoint?
        var serial: UInt32?
        var delivery: Delivery
        var body: ByteBuffer?
        var metadata: [String: String] = [:]
    }

    private final class Storage: @unchecked Sendable {
        // Proof: a storage is mutated only through the one SocketError that uniquely references it.
        var details: Details

        init(_ details: Details) { self.details = details }
    }

    // A single reference, so that a `Result` of it stays small on the path of every call.
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
            Details(
                code: code,
                message: message,
                underlying: underlying,
                endpoint: endpoint,
                serial: serial,
                delivery: delivery,
                body: body
            )
        )
    }

    /// An argument or a setting that cannot be used.
    package static func invalid(
        _ message: String,
        underlying: (any Error)? = nil,
        endpoint: Endpoint? = nil
    ) -> SocketError {
        SocketError(.invalidArgument, message: message, underlying: underlying, endpoint: endpoint)
    }

    private var details: Details {
        get { self.storage.details }
        _modify {
            if !isKnownUniquelyReferenced(&self.storage) { self.storage = Storage(self.storage.details) }
            yield &self.storage.details
        }
    }

    public var code: Code {
        get { self.storage.details.code }
        set { self.details.code = newValue }
    }

    /// A description of what failed, where, why, and what to do, in one line.
    public var message: String {
        get { self.storage.details.message }
        set { self.details.message = newValue }
    }

    /// The error that caused this one: for a call that found no connection, the last connect error.
    public var underlying: (any Error)? {
        get { self.storage.details.underlying }
        set { self.details.underlying = newValue }
    }

    /// The server concerned.
    public var endpoint: Endpoint? {
        get { self.storage.details.endpoint }
        set { self.details.endpoint = newValue }
    }

    /// The serial of the call concerned, if it had one.
    public var serial: UInt32? {
        get { self.storage.details.serial }
        set { self.details.serial = newValue }
    }

    /// The progress that the request had made.
    public var delivery: Delivery {
        get { self.storage.details.delivery }
        set { self.details.delivery = newValue }
    }

    /// The payload of an answer with an error status.
    public var body: ByteBuffer? {
        get { self.storage.details.body }
        set { self.details.body = newValue }
    }

    /// The metadata of an answer with an error status, by name; empty if there is none.
    public var metadata: [String: String] {
        get { self.storage.details.metadata }
        set { self.details.metadata = newValue }
    }

    /// Whether it is known that the server did not run the request, so that sending it again is safe: no byte of it was
    /// sent, or the server refused it with ``Status/undefinedType``, ``Status/overloaded`` or ``Status/draining``.
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
