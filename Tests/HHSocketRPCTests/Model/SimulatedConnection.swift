// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded

@testable import HHSocketRPC

/// A driver in virtual time, which makes the connections that a history says; the links are those of real connections,
/// on channels without a network. Calls on it run on the socket thread as far as the client can tell: one thing after
/// the other, on the one thread that the history runs on.
final class SimulatedConnection: ConnectionDriver, LinkHost, @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread, and so does all that is submitted in it. Interceptors submit
    // from other threads, into what locks guard.
    enum Link: Equatable {
        case offline, connecting
        case ready(ConnectionID)
    }

    /// The other end of a connection.
    private struct Peer {
        var channel: EmbeddedChannel
        var link: HHSocket.Link<FrameLanguage>
        var decoder: FrameDecoder
        /// Whether the client closes it: what is queued leaves, and nothing comes any more.
        var isClosing = false
    }

    private static let endpoint = Endpoint(host: "simulated", port: 1)
    static let maximumPayloadLength = 1_000

    let format: WireFormat
    let connector: FrameConnector
    let loop: SocketLoop
    let eventLoop = EmbeddedEventLoop()
    /// Told of everything; taken back by ``invalidate()``.
    private var client: ClientCore?

    private(set) var link = Link.offline
    /// Whether the ready connection's server is about to end.
    private(set) var isLeft = false
    private(set) var draining: [ConnectionID] = []
    private(set) var isClosed = false
    var isNetworkReachable = true
    /// What hello leads to on the next connection.
    var agreement: Agreement?
    /// Whether peers read. While they do not, frames queue.
    private var isPeerReading = true
    /// Whether the client wants nothing more to be read. What was read by then still comes.
    private(set) var isReadingSuspended = false
    private var peers: [ConnectionID: Peer] = [:]
    private var lastConnection: UInt64 = 0
    /// Why the connection that ends now is lost.
    private var loss = SocketError(.connectionLost, message: "lost")
    /// What is to be called on the socket thread.
    private let wakes: NIOLockedValueBox<[@Sendable () -> Void]>

    private var lastLeft: Frame?
    /// The last frame that left.
    var lastFrame: Frame? {
        self.collect()
        return self.lastLeft
    }
    // What a step has brought, until ``take()``.
    private var output = Output()
    /// A promise that the client has broken.
    private(set) var broken: String?

    /// What the client did.
    struct Output: Equatable {
        /// What left, in order.
        var wire: [String] = []
        var pulls = 0
        var suspicions = 0
        var failures: [String] = []
    }

    /// - Parameter submitted: Told, on any thread, that something was submitted, or refused.
    init(_ configuration: inout SocketClient.Configuration, submitted: @escaping @Sendable () -> Void = {}) {
        self.format = configuration.socket.wireFormat
        configuration.socket.maximumPayloadLength = Self.maximumPayloadLength
        // Histories damage as many frames as they like, and let peers take as long as they like.
        configuration.socket.maximumCorruptRun = .max
        configuration.socket.writeStallTimeout = .seconds(1_000_000_000)
        self.connector = FrameConnector(FrameRules(configuration.socket))
        let wakes = NIOLockedValueBox<[@Sendable () -> Void]>([])
        self.wakes = wakes
        let clock = NIOLoopBound(self.eventLoop, eventLoop: self.eventLoop)
        let thread = Int(bitPattern: pthread_self())
        self.eventLoop.advanceTime(to: .uptimeNanoseconds(1_000_000_000_000))
        self.loop = SocketLoop(
            eventLoop: self.eventLoop,
            thread: LoopThread(
                isCurrent: { thread == Int(bitPattern: pthread_self()) },
                wake: { wake in wakes.withLockedValue { $0.append(wake) } },
                now: { clock.value.now },
                submitted: submitted
            )
        )
        self.connector.attach(to: self) { [unowned self] frame, id, _ in
            self.client?.receivedGoAway(frame, on: id)
        }
    }

    /// Has the client told of everything.
    func setClient(_ client: ClientCore) {
        self.client = client
        self.loop.setHost(client)
    }

    /// A client on a connection of its own.
    static func make(
        _ configuration: SocketClient.Configuration,
        submitted: @escaping @Sendable () -> Void = {}
    ) -> (SimulatedConnection, ClientCore) {
        var configuration = configuration
        let connection = SimulatedConnection(&configuration, submitted: submitted)
        let client = ClientCore(
            configuration: configuration,
            connector: connection.connector,
            driver: connection,
            loop: connection.loop
        )
        connection.setClient(client)
        return (connection, client)
    }

    func take() -> Output {
        self.collect()
        defer { self.output = Output() }
        return self.output
    }

    /// The time of this world, which the history moves on.
    var time: NIODeadline { self.eventLoop.now }
    /// When the client's timer fires.
    var timer: NIODeadline { self.client?.hot.timerFires ?? .distantFuture }

    // MARK: What the client asks

    let currentEndpoint: Endpoint? = SimulatedConnection.endpoint
    let lastError: SocketError? = nil
    func notConnected() -> SocketError { SocketError(.notConnected, message: "offline") }
    func measure() {}

    func perform(_ request: DriverRequest, in turn: inout Turn) {
        switch request {
        case .reconnectSooner:
            self.output.pulls += 1
        case .suspect:
            self.output.suspicions += 1
        case .serverFails(_, let wrong, let calls):
            self.output.failures.append("\(wrong) of \(calls)")
        case .leave, .proved:
            self.broken = "a call asks for what transfers do"
        case .goAway(let id, _, _):
            self.announceGoAway(of: id, in: &turn)
        case .finishDraining(let id):
            if !self.draining.contains(id) { self.broken = "connection \(id.number) is finished, and does not drain" }
            self.draining.removeAll { $0 == id }
            self.close(id, in: &turn)
        case .setReading(let isSuspended):
            if self.isReadingSuspended == isSuspended { self.broken = "reading is suspended or resumed twice" }
            self.isReadingSuspended = isSuspended
            for peer in self.peers.values { peer.link.setReading(isSuspended: isSuspended, in: &turn) }
        case .awaitHello, .gateReturned:
            self.broken = "there is no gate"
        }
    }

    private func announceGoAway(of id: ConnectionID, in turn: inout Turn) {
        guard self.link == .ready(id), !self.isLeft else { return }
        self.isLeft = true
        self.client?.connectionChanged(.goingAway(id), in: &turn)
        self.client?.connectionChanged(.reconnectDeferred, in: &turn)
    }

    private func close(_ id: ConnectionID, in turn: inout Turn) {
        self.peers[id]?.isClosing = true
        self.peers[id]?.link.close(.done, in: &turn)
        // What is queued would leave as long as the link lingers. That is the link's own affair, and not the client's.
        if !self.isPeerReading { self.peers[id]?.link.kill() }
    }

    // MARK: What links tell

    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
        switch change {
        case .ended: break
        case .gone:
            self.collect()
            self.peers[id] = nil
            return
        default: return
        }
        self.peers[id]?.isClosing = true
        if self.link == .ready(id) {
            self.link = .offline
            self.isLeft = false
        } else if self.draining.contains(id) {
            self.draining.removeAll { $0 == id }
        } else {
            return
        }
        self.client?.connectionChanged(.lost(id, self.loss), in: &turn)
    }

    /// Reads what has left.
    private func collect() {
        for id in self.peers.keys.sorted(by: { $0.number < $1.number }) {
            while let bytes = try? self.peers[id]?.channel.readOutbound(as: ByteBuffer.self) {
                self.peers[id]?.decoder.append(bytes)
                while let next = try? self.peers[id]?.decoder.next() {
                    guard case .frame(let frame) = next else {
                        self.broken = "a frame left with a wrong checksum"
                        continue
                    }
                    self.left(frame, id)
                }
            }
        }
    }

    private func left(_ frame: Frame, _ id: ConnectionID) {
        self.lastLeft = frame
        let kind = frame.type == FrameType.cancel ? "cancel" : "request"
        self.output.wire.append("\(kind) \(frame.serial) '\(String(buffer: frame.payload))' on \(id.number)")
    }

    // MARK: What the history does

    /// Runs what was submitted, as the socket thread does when it wakes up.
    func runSubmissions() {
        while true {
            let wakes = self.wakes.withLockedValue { wakes in
                defer { wakes = [] }
                return wakes
            }
            guard !wakes.isEmpty else { return }
            for wake in wakes { wake() }
        }
    }

    /// Does something in a turn of its own.
    func turn(_ body: @escaping (inout Turn) -> Void) {
        self.loop.enter(body)
    }

    func advance(to time: NIODeadline) {
        while self.timer <= time {
            self.eventLoop.advanceTime(to: max(self.time, self.timer))
            if self.timer <= self.time { return self.broken = "the timer spins" }
        }
        self.eventLoop.advanceTime(to: time)
    }

    func beginConnecting() {
        guard self.link == .offline else { return }
        self.isClosed = false
        self.link = .connecting
        self.turn { self.client?.connectionChanged(.beingMade, in: &$0) }
    }

    func becomeReady() {
        self.lastConnection += 1
        let id = ConnectionID(number: self.lastConnection)
        var predecessor: ConnectionID?
        if case .ready(let id) = self.link { predecessor = id }
        if let predecessor { self.draining.append(predecessor) }
        self.link = .ready(id)
        self.isLeft = false
        guard self.connect(id) else { return self.broken = "no link can be made" }
        self.turn { turn in
            self.client?.connectionChanged(.ready(id, Self.endpoint), in: &turn)
            if self.isReadingSuspended { self.peers[id]?.link.setReading(isSuspended: true, in: &turn) }
            if let predecessor { self.client?.connectionChanged(.draining(predecessor), in: &turn) }
        }
    }

    /// Makes a connection whose handshake is over.
    private func connect(_ id: ConnectionID) -> Bool {
        guard let link = try? self.connector.makeLink(id, Self.endpoint, nil, self.loop, self),
            let link = link as? HHSocket.Link<FrameLanguage>
        else { return false }
        if let agreement = self.agreement {
            self.connector.pending(id)?.begin(attempt: 1, lastSerial: .max) { _, _ in }.agree(agreement) { $0 }
        }
        let channel = EmbeddedChannel(handler: link, loop: self.eventLoop)
        channel.isWritable = self.isPeerReading
        if !self.isPeerReading { channel.pipeline.fireChannelWritabilityChanged() }
        self.peers[id] = Peer(
            channel: channel,
            link: link,
            decoder: FrameDecoder(direction: .request, format: self.format)
        )
        return true
    }

    /// The ready connection is lost; what follows is for the history to say.
    func lose(_ error: SocketError) {
        guard case .ready(let id) = self.link else { return }
        self.end(id, error)
    }

    /// The oldest of the connections that drain is lost.
    func loseDraining(_ error: SocketError) {
        if let id = self.draining.first { self.end(id, error) }
    }

    private func end(_ id: ConnectionID, _ error: SocketError) {
        self.collect()
        self.loss = error
        self.peers[id]?.channel.close(promise: nil)
        self.eventLoop.run()
    }

    /// The server of the ready connection is about to end, and says so.
    func goAway(_ payload: ByteBuffer) {
        guard case .ready(let id) = self.link else { return }
        self.deliver(Frame(type: FrameType.goAway, serial: FrameSerial.goAway, payload: payload), on: id)
    }

    /// The next attempts to connect begin later.
    func deferReconnect() {
        guard self.isLeft || self.link == .connecting else { return }
        self.turn { self.client?.connectionChanged(.reconnectDeferred, in: &$0) }
    }

    func becomeOffline(_ error: SocketError) {
        self.link = .offline
        self.turn { self.client?.connectionChanged(.offline(error), in: &$0) }
    }

    /// The user disconnects.
    func close() {
        self.isClosed = true
        self.turn { turn in
            var ids = self.draining
            if case .ready(let id) = self.link { ids.insert(id, at: 0) }
            self.link = .offline
            self.isLeft = false
            self.draining = []
            for id in ids {
                self.client?.connectionChanged(.lost(id, Driver.closedByUser), in: &turn)
                self.close(id, in: &turn)
            }
            self.client?.connectionChanged(.happened(.closed), in: &turn)
        }
    }

    /// The connection that a frame comes by which is none's in particular.
    var anyConnection: ConnectionID? {
        self.peers.filter { !$0.value.isClosing }.keys.max { $0.number < $1.number }
    }

    /// What a read brings.
    func deliver(_ frame: Frame, isCorrupt: Bool = false, on id: ConnectionID) {
        guard let peer = self.peers[id], !peer.isClosing else {
            return self.broken = "a frame comes by connection \(id.number), which is gone"
        }
        var bytes = ByteBuffer()
        FrameEncoder(direction: .response, format: self.format).encode(frame, into: &bytes)
        if isCorrupt, let last = bytes.getInteger(at: bytes.writerIndex - 1, as: UInt8.self) {
            bytes.setInteger(last ^ 0xFF, at: bytes.writerIndex - 1)
        }
        peer.channel.pipeline.fireChannelRead(bytes)
        peer.channel.pipeline.fireChannelReadComplete()
    }

    func stopReading() { self.setPeers(reading: false) }

    func read() { self.setPeers(reading: true) }

    private func setPeers(reading: Bool) {
        guard reading != self.isPeerReading else { return }
        self.isPeerReading = reading
        for id in self.peers.keys.sorted(by: { $0.number < $1.number }) {
            self.peers[id]?.channel.isWritable = reading
            self.peers[id]?.channel.pipeline.fireChannelWritabilityChanged()
        }
    }

    func invalidate() {
        self.close()
        self.runSubmissions()
        self.turn {
            self.client?.connectionChanged(.invalidated, in: &$0)
            self.loop.close {}
        }
        self.client = nil
        self.eventLoop.advanceTime(by: .seconds(10))
    }
}
