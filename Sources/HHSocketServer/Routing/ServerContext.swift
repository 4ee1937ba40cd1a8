// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
public import Logging
import NIOConcurrencyHelpers
public import NIOCore

/// The origin of a request, and the data sent with it.
public struct ServerContext: Sendable {
    /// The data sent beside the bodies of a request and its answer. Without an agreement on metadata there is no such
    /// object; with one, requests without metadata share an object for as long as no handler sets anything in it or
    /// keeps it.
    final class Extras: Sendable {
        let metadata: [String: String]
        let deadline: NIODeadline?
        let idempotencyKey: String?
        private let lock = NIOLock()
        /// Proof of `nonisolated(unsafe)`: accessed only under the lock, or without it by the holder of the only
        /// reference; see ``ServerContext/isAsNew()``.
        nonisolated(unsafe) private var saidMetadata: [String: String] = [:]

        init(metadata: [String: String] = [:], deadline: NIODeadline? = nil, idempotencyKey: String? = nil) {
            self.metadata = metadata
            self.deadline = deadline
            self.idempotencyKey = idempotencyKey
        }

        /// The memory of what the client sent beside the body, in bytes.
        var memory: Int {
            let length = self.metadata.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count }
            let metadata = Resource.metadata(bytes: length, strings: 2 * self.metadata.count)
            return metadata.bytes + (self.idempotencyKey.map { ConnectionCost.runningKey + $0.utf8.count } ?? 0)
        }

        var answerMetadata: [String: String] {
            get { self.lock.withLock { self.saidMetadata } }
            set { self.lock.withLock { self.saidMetadata = newValue } }
        }

        /// Whether no answer metadata has been set. Only for the holder of the only reference.
        fileprivate var isSilent: Bool { self.saidMetadata.isEmpty }
    }

    /// The client's connection.
    public let session: ServerSession
    private(set) var extras: Extras?
    /// The values of ``subscript(_:)``; nil if there are none, as for most requests.
    private var values: [ObjectIdentifier: any Sendable]?

    init(session: ServerSession, extras: Extras? = nil) {
        self.session = session
        self.extras = extras
    }

    /// The event loop of the connection. Synchronous handlers run on it; it must never be blocked.
    public var eventLoop: any EventLoop { self.session.eventLoop }
    /// The server's logger, with the connection's number as metadata.
    public var logger: Logger { self.session.logger }

    /// The client's metadata, by lower-case name; empty where hello did not agree on metadata.
    public var metadata: [String: String] { self.extras?.metadata ?? [:] }
    /// The time on this machine's clock from which the answer is useless to the client; nil if the client set no
    /// deadline. The task of an asynchronous handler is cancelled then.
    public var deadline: NIODeadline? { self.extras?.deadline }
    /// The client's name for the request, by which a repeat of it is recognised; nil where it has none.
    public var idempotencyKey: String? { self.extras?.idempotencyKey }

    /// The metadata sent beside the answer's body, by lower-case name; empty at first. Only clients whose hello agreed
    /// on metadata receive it.
    public var answerMetadata: [String: String] {
        get { self.extras?.answerMetadata ?? [:] }
        nonmutating set { self.extras?.answerMetadata = newValue }
    }

    /// A value that middleware attaches to the request for the handler. Requests without values allocate nothing.
    ///
    /// ```swift
    /// enum Account: ServerContextKey { typealias Value = AccountRecord }
    ///
    /// var context = context
    /// context[Account.self] = try await accounts.record(of: context.session.identity)
    /// return try await next(request, context)
    /// ```
    ///
    /// A context is a value: a value set in a copy is visible only to those that are passed the copy.
    public subscript<Key: ServerContextKey>(_ key: Key.Type) -> Key.Value? {
        get { self.values?[ObjectIdentifier(key)] as? Key.Value }
        set {
            if newValue == nil, self.values == nil { return }
            self.values = self.values ?? [:]
            self.values?[ObjectIdentifier(key)] = newValue
        }
    }

    /// Sends a push to every connection of one client of this server, as ``SocketServer/push(type:body:to:)``: from a
    /// handler, which need not know the server.
    ///
    /// - Returns: The number of connections that accepted it; 0 if the client is not connected.
    @discardableResult
    public func push(type: UInt32, body: ByteBuffer, to identity: String) async -> Int {
        await self.session.port.registry.push(type: type, body: body, to: identity)
    }

    /// Returns whether a handler that was given this context, and has returned, neither set answer metadata nor kept a
    /// reference; if so, the context serves the next handler too.
    mutating func isAsNew() -> Bool {
        self.extras == nil || (isKnownUniquelyReferenced(&self.extras) && self.extras?.isSilent == true)
    }

    /// Hands over the extras, to which there must be only one reference.
    mutating func takeExtras() -> Extras? {
        var taken: Extras?
        swap(&taken, &self.extras)
        return taken
    }
}

/// The key of a value that is attached to a request, for ``ServerContext/subscript(_:)``.
public protocol ServerContextKey {
    associatedtype Value: Sendable
}
