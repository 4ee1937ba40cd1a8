// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// A layer between requests and handlers, for ``Router/use(_:)`` and ``Router/group(_:limits:_:)``: a
/// ``ServerMiddleware``, a ``ServerAdmission``, a ``RefusalObserver``, or several of them in one type.
public protocol RouterLayer: Sendable {}

/// Decides on requests by their headers, before their bodies are read.
///
/// A request that it refuses is neither decompressed nor given a task, and is not compared with earlier ones that had
/// the same idempotency key. A repeat whose answer was kept passes admission again, so that it gets that answer only
/// while it is allowed to; and a refusal is never kept.
///
/// ```swift
/// struct Tenants: ServerAdmission {
///     func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission {
///         header.metadata["tenant"] == session[Tenant.self] ? .admit : .refuse(.noPermission)
///     }
/// }
/// router.use(Tenants())
/// ```
/// A decision that has to wait, such as for a database, is a ``ServerMiddleware``.
public protocol ServerAdmission: RouterLayer {
    /// Whether it refuses clients without an identity most requests (``ServerSession/authenticate(as:)``). False by
    /// default. Where it is true for one that the router itself uses, rather than a group, the server treats clients
    /// without an identity as strangers.
    var requiresIdentity: Bool { get }

    /// Decides on a request. Called on the connection's event loop, which it must not block.
    ///
    /// It is called for requests of every type in its router or group; a layer of the router itself also for types
    /// without a handler, so that clients that it refuses cannot find out which types exist.
    func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission
}

extension ServerAdmission {
    public var requiresIdentity: Bool { false }
}

/// A decision on a request.
public enum Admission: Hashable, Sendable {
    case admit
    /// The request is answered with this status and an empty body; ``/HHSocket/Status/ok`` is replaced by
    /// ``/HHSocket/Status/unknown``.
    case refuse(Status)
}

/// Observes requests that are answered without any middleware or handler, so that access logs and metrics are complete:
/// requests that are refused for a limit (503), a deadline (408) or a missing permission (405), whose type has no
/// handler (401), that are too long (301) or not allowed by the protocol (303), and that arrive during a shutdown
/// (504).
///
/// Answers that were kept for an idempotency key are not refusals; ``ServerCounter/idempotentRepeats`` counts them.
/// Requests that time out while their handler runs are no refusals either: middleware sees them.
public protocol RefusalObserver: RouterLayer {
    /// A request has been refused. Called on the connection's event loop, or in the request's task; it must not block.
    func refused(_ header: RequestHeader, with status: Status, in session: ServerSession)
}

/// An admission that is a closure.
struct ClosureAdmission: ServerAdmission {
    let decide: @Sendable (RequestHeader, ServerSession) -> Admission

    func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission { self.decide(header, session) }
}
