// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A STOMP client on its socket's thread: performs the decisions of ``STOMPMachine`` on the connections that a
/// ``/HHSocket/MessageSession`` makes.
///
/// This file handles received frames; `+Connecting` handles CONNECT, `+Ends` the ends of connections, `+Sending` the
/// user's frames, `+Subscribing` subscriptions, `+Reading` the delivery of messages, `+Time` operations and their
/// timeouts, `+Waiting` calls from other threads.
package final class STOMPCore: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, and so are the weak references, which are set before the first
    // submission; the rest is accessed only on the socket's thread.
    package typealias Session = MessageSession<STOMPDialect>

    let configuration: STOMPClient.Configuration
    private(set) weak var session: Session?
    private(set) weak var driver: Driver?
    var machine: STOMPMachine
    /// The connection on which CONNECT was sent last.
    var connecting: STOMPPeer?
    /// The accepted connection.
    var peer: STOMPPeer?
    var operations = STOMPOperations()
    var routes: [String: STOMPRoute] = [:]
    /// Whether a connection makes its subscriptions one after the other, because the broker closed the last one before
    /// it had confirmed all.
    var isCareful = false
    /// The task that has made the current submission, if it may be cancelled.
    var token: STOMPToken?
    /// The number of the accepted connection, for other threads; 0 if there is none.
    let current = NIOLockedValueBox<UInt64>(0)
    /// The operations that wait for a connection.
    var connectionWaiters: [STOMPOperation] = []
    /// Whether the broker has answered the latest DISCONNECT.
    let hasParted = NIOLockedValueBox(false)
    /// Whether the client has been released.
    var isOver = false
    /// The callbacks that wait until no operation waits for the broker.
    var idleWaiters: [(inout Turn) -> Void] = []
    /// Ends their wait.
    var idleTimer: SocketLoop.TimerID?
    /// The subscriptions whose messages are not read fast enough.
    var fullRoutes: Set<String> = []
    /// The last reported state of ``isBehind``.
    var isReadingUnwanted = false
    var timer: SocketLoop.TimerID?

    init(_ configuration: STOMPClient.Configuration) {
        self.configuration = configuration
        var settings = STOMPMachine.Settings()
        settings.versions = configuration.versions.sorted()
        settings.heartbeats = configuration.heartbeats
        settings.host = configuration.host
        settings.headers = configuration.connectHeaders
        self.machine = STOMPMachine(settings)
    }

    func attach(_ session: Session, _ driver: Driver) {
        self.session = session
        self.driver = driver
    }

    static func lost(_ why: String, _ delivery: SocketError.Delivery = .notSent) -> SocketError {
        SocketError(.connectionLost, message: why, delivery: delivery)
    }

    static let released = SocketError(.cancelled, message: "the client was released")

    // MARK: From any thread

    /// Runs `body` on the socket's thread: immediately if called there by a handler.
    ///
    /// - Returns: False if the thread has ended.
    @discardableResult
    func perform(_ body: @escaping @Sendable (inout Turn) -> Void) -> Bool {
        guard let driver = self.driver else { return false }
        let isDone = driver.loop.ifHandlersRun { turn in
            body(&turn)
            return true
        }
        return isDone || driver.submit(.closure(body))
    }

    /// Whether the broker has confirmed the latest DISCONNECT.
    var hasConfirmedDisconnect: Bool { self.hasParted.withLockedValue { $0 } }

    /// Returns whether messages that this connection delivered can still be acknowledged.
    func isCurrent(_ connection: UInt64) -> Bool { self.connectionNumber == connection }

    /// The number of the accepted connection; 0 if there is none. May be read on any thread.
    var connectionNumber: UInt64 { self.current.withLockedValue { $0 } }

    // MARK: Frames

    func received(_ frame: STOMPFrame, from peer: STOMPPeer, in turn: inout Turn) throws(LinkError) {
        // The end of a connection that was never accepted is not reported.
        guard peer === self.peer || (peer === self.connecting && peer.link.phase == .open) else { return }
        let news: STOMPMachine.News
        do throws(STOMPMachine.Failure) {
            news = try self.machine.received(frame)
        } catch {
            switch error {
            case .violation(let text):
                throw LinkError(text)
            case .error(let error, isAnswerToConnect: true):
                return self.refuse(peer, self.refusal(error, peer), .stop, &turn)
            case .error(let error, isAnswerToConnect: false):
                self.blame(error, peer)
                throw LinkError("ERROR: \(error)", underlying: error, reason: .done)
            }
        }
        switch news {
        case .connected:
            self.connecting = nil
            self.peer = peer
            self.current.withLockedValue { $0 = self.machine.connection }
            self.hasParted.withLockedValue { $0 = false }
            peer.connectAnswered.take()?(nil, &turn)
        case .message(let delivery):
            // The broker takes back messages that are not acknowledged before DISCONNECT.
            guard delivery.ackMode == .auto || peer.link.phase == .open else { return }
            self.deliver(STOMPMessage(frame, delivery, self), in: &turn)
        case .unclaimed:
            self.session?.report(.unclaimed(STOMPMessage(frame, nil, self)))
        case .receipt(let receipt):
            self.confirm(receipt, peer, in: &turn)
        }
    }

    private func confirm(_ receipt: String, _ peer: STOMPPeer, in turn: inout Turn) {
        if receipt == peer.farewell {
            self.hasParted.withLockedValue { $0 = true }
            peer.link.peerAnsweredClose(in: &turn)
        } else if let operation = self.operations.awaiting(receipt) {
            self.complete(operation, .success(()))
        } else {
            self.confirmSubscription(receipt)
            self.subscribeNext(in: &turn)
        }
    }
}
