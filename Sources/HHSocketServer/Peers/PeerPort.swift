// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// A peer, as other threads use it by its port. On its event loop.
protocol PortedPeer: AnyObject {
    /// The streams of its session; nil if it has none.
    var streamHost: (any StreamHost)? { get }
    func evict(_ eviction: Eviction, in turn: inout Turn)
    func say(_ farewell: Farewell, in turn: inout Turn)
    func identityChanged(in turn: inout Turn)
    /// - Returns: Whether it was accepted.
    func push(_ push: SharedPush, in turn: inout Turn) -> Bool
}

/// The way from other threads to a peer, with its identity, until its connection has ended. The public handles of
/// clients are views of it.
final class PeerPort: @unchecked Sendable {
    // Proof of Sendable: the peer is accessed only on the event loop; everything else is constant or locked.
    private struct State {
        var identity: String?
        /// The requests in flight of the identity.
        var identityLoad: IdentityLoad?
        /// The public handle that the registry has.
        var handle: (any IdentifiedConnection)?
        var isOpen = true
    }

    let loop: SocketLoop
    let account: LedgerAccount
    let registry: SessionRegistry
    /// Not in a box bound to the event loop, which would be another object of every connection.
    private var peer: (any PortedPeer)?
    private let state = NIOLockedValueBox(State())

    init(on loop: SocketLoop, _ account: LedgerAccount, _ registry: SessionRegistry) {
        self.loop = loop
        self.account = account
        self.registry = registry
    }

    // MARK: From any thread

    /// Runs `body` in a turn of the event loop, if the connection exists then.
    ///
    /// - Returns: False if it does not exist now.
    @discardableResult
    func onLoop(_ body: @escaping @Sendable (any PortedPeer, inout Turn) -> Void) -> Bool {
        self.state.withLockedValue { state in
            guard state.isOpen else { return false }
            // Submitted under the lock: once the connection has ended, the event loop may be gone.
            return self.loop.submit { turn in if let peer = self.peer { body(peer, &turn) } }
        }
    }

    /// Sends a push; the future says whether it was accepted.
    func push(_ push: SharedPush) -> EventLoopFuture<Bool>? {
        self.state.withLockedValue { state in
            guard state.isOpen else { return nil }
            let promise = self.loop.eventLoop.makePromise(of: Bool.self)
            let isSubmitted = self.loop.submit { turn in promise.succeed(self.peer?.push(push, in: &turn) ?? false) }
            if !isSubmitted { promise.succeed(false) }
            return promise.futureResult
        }
    }

    /// The identity of the client; nil if it has none.
    var identity: String? { self.state.withLockedValue { $0.identity } }

    /// The requests in flight of the client's identity; nil if they are not counted.
    var identityLoad: IdentityLoad? { self.state.withLockedValue { $0.identityLoad } }

    /// Sets the identity. When this returns, the registry and the ledger have changed.
    ///
    /// - Parameter handle: The public handle, which the registry finds by the identity.
    func identify(as identity: String?, _ handle: any IdentifiedConnection) {
        let registry = self.registry
        let (isChanged, dismissed): (Bool, (any IdentifiedConnection)?) = self.state.withLockedValue { state in
            guard state.isOpen, state.identity != identity else { return (false, nil) }
            // Inside the lock, so that the registry matches the last call.
            if let old = state.identity { registry.remove(handle, old) }
            let addition = identity.map { registry.add(handle, $0) }
            state.identity = identity
            state.handle = handle
            state.identityLoad = addition?.load
            self.account.setIdentity(identity)
            return (true, addition?.dismissed)
        }
        dismissed?.dismiss()
        if isChanged { self.onLoop { $0.identityChanged(in: &$1) } }
    }

    // MARK: On the event loop

    func open(_ peer: any PortedPeer) { self.peer = peer }

    /// The connection has ended. The identity remains readable.
    func close() {
        self.state.withLockedValue { state in
            if let identity = state.identity, let handle = state.handle { self.registry.remove(handle, identity) }
            state.isOpen = false
            state.handle = nil
        }
        self.peer = nil
    }
}

extension PeerPort: LedgerHolder {
    func evict() { self.onLoop { $0.evict(.memory, in: &$1) } }
}
