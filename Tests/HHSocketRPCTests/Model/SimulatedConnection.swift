// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded

@testable import HHSocketRPC

/// A driver in virtual time, which makes the connections of a history; the links are those of real connections, on
/// channels without a network. The history's only thread acts as the socket thread.
final class SimulatedConnection: ConnectionDriver, LinkHost, @unchecked Sendable {
    // Proof of Sendable: a history and its submissions run on one thread. Interceptors submit from other threads, to
    // state that locks protect.
    enum Link: Equatable {
        case offline, connecting
        case ready(ConnectionID)
    }

    /// The other end of a connection.
    private struct Peer {
        var channel: EmbeddedChannel
        var link: HHSocket.Link<FrameLanguage>
        var decoder: FrameDecoder
        /// Whether the client closes it: queued frames are sent, and no more are received.
        var isClosing = false
    }

    private static let endpoint = Endpoint(host: "simulated", port: 1)
    static let maximumPayloadLength = 1_000

    let format: WireFormat
    let connector: FrameConnector
    let loop: SocketLoop
    let eventLoop = EmbeddedEventLoop()
    /// The notified client; released by ``invalidate()``.
    private var client: ClientHost?

    private(set) var link = Link.offline
    /// Whether the ready connection's server is about to end.
    private(set) var isLeft = false
    private(set) var draining: [ConnectionID] = []
    private(set) var isClosed = false
    var isNetworkReachable = true
    /// The agreement of hello on the next connection.
    var agreement: Agreement?
    /// Whether peers read. While they do not, frames queue.
    private var isPeerReading = true
    /// Whether the client has suspended reading. Frames that were read before are still delivered.
    private(set) var isReadingSuspended = false
    private var peers: [ConnectionID: Peer] = [:]
    private var lastConnection: UInt64 = 0
    /// The reason why the connection that ends now is lost.
    private var loss = SocketError(.connectionLost, message: "lost")
    /// The functions to call on the socket thread.
    private let wakes: NIOLockedValueBox<[@Sendable () -> Void]>

    private var lastLeft: Frame?
    /// The last sent frame.
    var lastFrame: Frame? {
        self.collect()
        return self.lastLeft
    }
    // The results of a step, until ``take()``.
    private var output = Output()
    /// A promise that the client has broken.
    private(set) var broken: String?

    /// The actions of the client.
    struct Output: Equatable {
        /// The sent frames, in order.
        var wire: [String] = []
        var pulls = 0
        var suspicions = 0
        var failures: [String] = []
    }

    /// - Parameter submitted: Called, on any thread, when something was submitted or rejected.
    init(_ configuration: inout SocketClient.Configuration, submitted: @escaping @Sendable () -> Void = {}) {
        self.format = configuration.socket.wireFormat
        configuration.socket.maximumPayloadLength = Self.maximumPayloadLength
        // Histories may damage any number of frames, and delay peers for any time.
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
    }

    /// Sets the client to notify.
    func setClient(_ client: ClientHost) {
        self.client = client
        self.connector.attach(to: self, client)
        self.loop.setHost(client)
    }

    /// Makes a client on a separate connection.
    static func make(
        _ configuration: SocketClient.Configuration,
        audience: DelegateReference = DelegateReference(),
        submitted: @escaping @Sendable () -> Void = {}
    ) -> (SimulatedConnection, ClientHost) {
        var configuration = configuration
        let connection = SimulatedConnection(&configuration, submitted: submitted)
        let client = ClientHost(
            configuration: configuration,
            rules: connection.connector.rules,
            driver: connection,
            loop: connection.loop,
            audience: audience
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
    /// The time at which the client's timer fires.
    var timer: NIODeadline { self.client?.engine.hot.timerFires ?? .distantFuture }

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
        case .replace, .proved:
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
        // Queued frames would be sent while the link lingers, which this model does not include.
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

    /// Collects the sent frames.
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

    /// Runs `body` in a separate turn.
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
        guard let made = self.connect(id) else { return self.broken = "no link can be made" }
        self.turn { turn in
            made.isReady(in: &turn)
            if self.isReadingSuspended { self.peers[id]?.link.setReading(isSuspended: true, in: &turn) }
            if let predecessor { self.client?.connectionChanged(.draining(predecessor), in: &turn) }
        }
    }

    /// Makes a connection that has completed its handshake.
    private func connect(_ id: ConnectionID) -> PendingConnection? {
        guard let made = try? self.connector.makeLink(id, to: Self.endpoint, agreement: nil, on: self.loop, for: self),
            let made = made as? PendingConnection
        else { return nil }
        if let agreement = self.agreement { made.begin(attempt: 1) { _, _ in }.agree(agreement) { $0 } }
        let link = made.link
        let channel = EmbeddedChannel(handler: link, loop: self.eventLoop)
        channel.isWritable = self.isPeerReading
        if !self.isPeerReading { channel.pipeline.fireChannelWritabilityChanged() }
        self.peers[id] = Peer(
            channel: channel,
            link: link,
            decoder: FrameDecoder(direction: .request, format: self.format)
        )
        return made
    }

    /// Loses the ready connection; the history determines the next steps.
    func lose(_ error: SocketError) {
        guard case .ready(let id) = self.link else { return }
        self.end(id, error)
    }

    /// Loses the oldest draining connection.
    func loseDraining(_ error: SocketError) {
        if let id = self.draining.first { self.end(id, error) }
    }

    private func end(_ id: ConnectionID, _ error: SocketError) {
        self.collect()
        self.loss = error
        self.peers[id]?.channel.close(promise: nil)
        self.eventLoop.run()
    }

    /// Sends the go-away of the ready connection's server.
    func goAway(_ payload: ByteBuffer) {
        guard case .ready(let id) = self.link else { return }
        self.deliver(Frame(type: FrameType.goAway, serial: FrameSerial.goAway, payload: payload), on: id)
    }

    /// Delays the next attempts to connect.
    func deferReconnect() {
        guard self.isLeft || self.link == .connecting else { return }
        self.turn { self.client?.connectionChanged(.reconnectDeferred, in: &$0) }
    }

    func becomeOffline(_ error: SocketError) {
        self.link = .offline
        self.turn { self.client?.connectionChanged(.offline(error), in: &$0) }
    }

    /// Disconnects as the user.
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

    /// The connection on which a frame without a particular one arrives.
    var anyConnection: ConnectionID? {
        self.peers.filter { !$0.value.isClosing }.keys.max { $0.number < $1.number }
    }

    /// Delivers the frame of a read.
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
