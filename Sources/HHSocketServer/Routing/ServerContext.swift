// SPDX-License-Identifier: Apache-2.0
public import Logging
import NIOConcurrencyHelpers
public import NIOCore

/// The origin of a request, and the data that came with it.
public struct ServerContext: Sendable {
    /// Data beside the bodies of a request and of its answer. Without an agreement on metadata there is no such object;
    /// with one, requests that bring none share one, for as long as no handler sets anything in it or keeps it.
    final class Extras: Sendable {
        let metadata: [String: String]
        let deadline: NIODeadline?
        let idempotencyKey: String?
        private let lock = NIOLock()
        /// Proof of `nonisolated(unsafe)`: touched under the lock alone; without it by who has the only reference, see
        /// ``ServerContext/isAsNew()``.
        nonisolated(unsafe) private var saidMetadata: [String: String] = [:]

        init(metadata: [String: String] = [:], deadline: NIODeadline? = nil, idempotencyKey: String? = nil) {
            self.metadata = metadata
            self.deadline = deadline
            self.idempotencyKey = idempotencyKey
        }

        var answerMetadata: [String: String] {
            get { self.lock.withLock { self.saidMetadata } }
            set { self.lock.withLock { self.saidMetadata = newValue } }
        }

        /// Whether nothing has been said in it. For who has the only reference.
        fileprivate var isSilent: Bool { self.saidMetadata.isEmpty }
    }

    /// The client's connection.
    public let session: ServerSession
    private(set) var extras: Extras?
    /// The values of ``subscript(_:)``; nil where there are none, as for most requests.
    private var values: [ObjectIdentifier: any Sendable]?

    init(session: ServerSession, extras: Extras? = nil) {
        self.session = session
        self.extras = extras
    }

    /// A number that no other connection of this server has or had.
    public var connectionID: UInt64 { self.session.id }
    /// The client's address, where the system told it.
    public var remoteAddress: SocketAddress? { self.session.remoteAddress }
    /// The event loop of the connection. Synchronous handlers run on it; it must never be blocked.
    public var eventLoop: any EventLoop { self.session.eventLoop }
    /// The server's logger, which also says which connection it is.
    public var logger: Logger { self.session.logger }

    /// The client's metadata, by lower-case name; empty where hello did not agree on metadata.
    public var metadata: [String: String] { self.extras?.metadata ?? [:] }
    /// From when on the answer is of no use to the client, by this machine's clock; nil where it did not say. The task
    /// of an asynchronous handler is cancelled then.
    public var deadline: NIODeadline? { self.extras?.deadline }
    /// The client's name for the request, by which a repeat of it is recognised; nil where it has none.
    public var idempotencyKey: String? { self.extras?.idempotencyKey }

    /// The metadata sent beside the answer's body, by lower-case name; empty at first. It reaches clients whose hello
    /// agreed on metadata; others do not get it.
    public var answerMetadata: [String: String] {
        get { self.extras?.answerMetadata ?? [:] }
        nonmutating set { self.extras?.answerMetadata = newValue }
    }

    /// A value that goes with the request, from middleware to the handler. Nothing is allocated for requests that have
    /// none.
    ///
    /// ```swift
    /// enum Account: ServerContextKey { typealias Value = AccountRecord }
    ///
    /// var context = context
    /// context[Account.self] = try await accounts.record(of: context.session.identity)
    /// return try await next(request, context)
    /// ```
    /// A context is a value: what is set in a copy of it is seen by whoever is given the copy, and by nobody else.
    public subscript<Key: ServerContextKey>(_ key: Key.Type) -> Key.Value? {
        get { self.values?[ObjectIdentifier(key)] as? Key.Value }
        set {
            if newValue == nil, self.values == nil { return }
            self.values = self.values ?? [:]
            self.values?[ObjectIdentifier(key)] = newValue
        }
    }

    /// Whether a handler that was given this, and has returned, has neither said anything beside its answer nor kept
    /// the means to: then it serves the next one too.
    mutating func isAsNew() -> Bool {
        self.extras == nil || (isKnownUniquelyReferenced(&self.extras) && self.extras?.isSilent == true)
    }

    /// Hands over the extras, of which there is to be one reference alone.
    mutating func takeExtras() -> Extras? {
        var taken: Extras?
        swap(&taken, &self.extras)
        return taken
    }
}

/// Names a value that goes with a request, for ``ServerContext/subscript(_:)``.
public protocol ServerContextKey {
    associatedtype Value: Sendable
}
