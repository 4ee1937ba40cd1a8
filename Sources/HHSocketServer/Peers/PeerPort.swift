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
    // Proof of Sendable: the peer is accessed only on the event loop, the number set before handles exist; all else is
    // constant or locked.
    private struct State {
        var identity: String?
        /// The requests in flight of the identity.
        var identityLoad: IdentityLoad?
        var isOpen = true
    }

    let loop: SocketLoop
    let account: LedgerAccount
    let registry: SessionRegistry
    /// Not in a box bound to the event loop, which would be another object of every connection.
    private var peer: (any PortedPeer)?
    private var number: UInt64 = 0
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

    /// Sends a push, and returns whether it was accepted.
    func push(_ push: SharedPush) async -> Bool {
        let isAccepted: EventLoopFuture<Bool>? = self.state.withLockedValue { state in
            guard state.isOpen else { return nil }
            let promise = self.loop.eventLoop.makePromise(of: Bool.self)
            let isSubmitted = self.loop.submit { turn in promise.succeed(self.peer?.push(push, in: &turn) ?? false) }
            if !isSubmitted { promise.succeed(false) }
            return promise.futureResult
        }
        return await (try? isAccepted?.get()) ?? false
    }

    /// The identity of the client; nil if it has none.
    var identity: String? { self.state.withLockedValue { $0.identity } }

    /// The requests in flight of the client's identity; nil if they are not counted.
    var identityLoad: IdentityLoad? { self.state.withLockedValue { $0.identityLoad } }

    /// Sets the identity, whatever the peer speaks. When this returns, the registry and the ledger have changed.
    func identify(as identity: String?) {
        let (isChanged, dismissed): (Bool, (any IdentifiedConnection)?) = self.state.withLockedValue { state in
            guard state.isOpen, state.identity != identity else { return (false, nil) }
            // Inside the lock, so that the registry matches the last call.
            if let old = state.identity { self.registry.remove(self, old) }
            let addition = identity.map { self.registry.add(self, $0) }
            state.identity = identity
            state.identityLoad = addition?.load
            self.account.setIdentity(identity)
            return (true, addition?.dismissed)
        }
        dismissed?.dismiss()
        if isChanged { self.onLoop { $0.identityChanged(in: &$1) } }
    }

    // MARK: On the event loop

    func open(_ peer: any PortedPeer) { self.peer = peer }

    /// The peer is admitted, with the number of its connection, and with its identity if that is known.
    func admit(_ number: UInt64, as identity: String?) {
        self.number = number
        if let identity { self.identify(as: identity) }
    }

    /// The connection has ended. The identity remains readable.
    func close() {
        self.state.withLockedValue { state in
            if let identity = state.identity { self.registry.remove(self, identity) }
            state.isOpen = false
        }
        self.peer = nil
    }
}

extension SessionRegistry {
    /// Sends a push to every connection of an identity.
    ///
    /// - Returns: The number of connections that accepted it.
    func push(type: UInt32, body: ByteBuffer, to identity: String) async -> Int {
        let (push, connections) = (SharedPush.one(type: type, body: OwnedBytes(body)), self.connections(of: identity))
        var count = 0
        for case let port as PeerPort in connections where await port.push(push) { count += 1 }
        return count
    }
}

extension PeerPort: IdentifiedConnection, LedgerHolder {
    var id: UInt64 { self.number }

    func dismiss() { self.onLoop { $0.evict(.tooManySessions, in: &$1) } }

    func evict() { self.onLoop { $0.evict(.memory, in: &$1) } }
}
