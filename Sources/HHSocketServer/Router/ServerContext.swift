public import Logging
import NIOConcurrencyHelpers
public import NIOCore

/// Where a request came from, and what came with it.
public struct ServerContext: Sendable {
    /// What came beside the body. Most requests have none, and then there is no such object.
    final class Extras: Sendable {
        let metadata: [String: String]
        let deadline: NIODeadline?
        let idempotencyKey: String?
        let answerMetadata = NIOLockedValueBox<[String: String]>([:])

        init(metadata: [String: String] = [:], deadline: NIODeadline? = nil, idempotencyKey: String? = nil) {
            self.metadata = metadata
            self.deadline = deadline
            self.idempotencyKey = idempotencyKey
        }
    }

    /// The client's connection.
    public let session: ServerSession
    let extras: Extras?

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

    /// What the client says beside the body, by lower-case name; empty where hello did not agree on metadata.
    public var metadata: [String: String] { self.extras?.metadata ?? [:] }
    /// From when on the answer is of no use to the client, by this machine's clock; nil where it did not say. The task of an
    /// asynchronous handler is cancelled then.
    public var deadline: NIODeadline? { self.extras?.deadline }
    /// What names the request among the client's, so that a repeat of it is known as one; nil where it has no such name.
    public var idempotencyKey: String? { self.extras?.idempotencyKey }

    /// What is said to the client beside the answer's body, by lower-case name; empty at first. It reaches clients whose
    /// hello agreed on metadata; others do not get it.
    public var answerMetadata: [String: String] {
        get { self.extras?.answerMetadata.withLockedValue { $0 } ?? [:] }
        nonmutating set { self.extras?.answerMetadata.withLockedValue { $0 = newValue } }
    }
}
