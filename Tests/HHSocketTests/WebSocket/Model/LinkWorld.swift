// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import TestSupport

@testable import HHSocket
@testable import HHSocketLink

/// A link in virtual time, the network and the servers around it, and their promises.
///
/// Everything of the link is real: its public face, the session, the driver and its machine, the dialer, the opening,
/// the language, the loop. The channels, the clock and the random numbers are the history's.
final class LinkWorld: PeerObserver, @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread, Swift's tasks included, which run on the link's executor.
    let settings: LinkWorldSettings
    let loop = EmbeddedEventLoop()
    var generator: SeededGenerator
    var link: WebSocketLink?
    weak var trace: WebSocketLink?
    let executor: SocketExecutor
    var broken: String?
    var stepNumber = 0

    // The network and the servers.
    var mood = ServerMood()
    var peers: [SimulatedPeer] = []
    var states: [PeerState] = []
    var dials: [Int: EventLoopPromise<any Channel>] = [:]
    var isReachable = true
    var isInBackground = false
    /// The times at which servers have asked to be tried again.
    var returns: [String: NIODeadline] = [:]

    /// The state of a connection beside that of its peer.
    struct PeerState {
        let host: String
        /// The delivered close frame, after which nothing counts.
        var deliveredClose: WebSocketClose?
        var deliveredViolation: Int?
        var deliveredCloseAt: NIODeadline?
        /// The user's close of the open connection.
        var ownClose: WebSocketClose?
        var ownCloseAt: NIODeadline?
        var closeWrittenAt: NIODeadline?
        var wasOpened = false
        /// The time at which its silence, or its refusal to take bytes, began to count.
        var aliveAt: NIODeadline
        var progressAt: NIODeadline
        var takenBytes = 0
        var deliveredBytes = 0
    }

    // The expected state of the link.
    enum Life { case idle, wanted, closed }
    var life = Life.idle {
        didSet { if self.life == .closed { self.wasClosed = true } }
    }
    /// Whether attempts have stopped because all allowed ones have failed; a message starts them again.
    var hasRunOut = false
    /// Whether attempts have stopped in this step, and a failure that nothing else explains.
    var wasClosed = false
    var unexplained: String?
    /// The messages that were lost in this step.
    var lost: [(number: Int, peer: SimulatedPeer)] = []
    /// The number of attempts requested by the user despite the missing network.
    var insisted = 0
    var idleSince: NIODeadline?
    var openPeer: SimulatedPeer?
    var mustHaveEnded = false
    var isSwitching = false
    var hasEverOpened = false

    // Sent messages.
    var sent: [SentMessage] = []
    var unsettled: [Int] = []
    var senders: [Int: Task<Void, Never>] = [:]
    var lastBegun = -1
    var begunWithoutNumber: Int?
    /// The bytes of messages that were cancelled in the queue of a link.
    var ghosts = 0
    var pings: [(payload: ByteBuffer, outcomes: Int)] = []
    var pongs: Set<ByteBuffer> = []

    // Received messages.
    var expected: [(message: WebSocketMessage, isOptional: Bool)] = []
    var nextExpected = 0
    var serverCount = 0
    var isHeld = false
    var allowance = 0
    var gate: CheckedContinuation<Void, Never>?
    var endedTasks = 0

    init(_ settings: LinkWorldSettings, seed: UInt64) throws {
        self.settings = settings
        self.generator = SeededGenerator(seed: seed ^ 0x5EED)
        let loop = self.loop
        loop.advanceTime(to: .uptimeNanoseconds(1_000_000_000_000))
        let urls = ["ws://one.example/chat", "ws://two.example/chat"].prefix(settings.serverCount)
        var socket = SocketConfiguration(servers: try urls.map { try Endpoint(url: $0) })
        socket.networkMonitor = nil
        socket.eventLoopGroup = loop
        socket.callbackQueue = .socketThread
        socket.maximumQueuedBytes = settings.maximumBytes
        socket.heartbeat = settings.heartbeat.map {
            HeartbeatPolicy(interval: .seconds($0.interval), replyTimeout: .seconds($0.reply))
        }
        socket.backgroundPolicy = settings.background
        socket.backoff = Backoff(maximumRounds: settings.maximumRounds)
        var configuration = WebSocketLink.Configuration(socket: socket)
        configuration.subprotocols = ["a", "b"]
        configuration.compression = settings.isCompressed ? WebSocketCompression() : nil
        configuration.maximumWaitingMessages = settings.maximumWaiting
        if settings.beatsAreMessages { configuration.heartbeatMessage = { WebSocketMessage(.text, SentMessage.beat) } }
        let box = Unowned()
        let world = DriverWorld.simulated(on: loop) {
            box.world?.random() ?? 0
        } open: { host, initializer in
            box.world?.dial(host, initializer) ?? loop.makeFailedFuture(ChannelError.connectPending)
        }
        let link = WebSocketLink(configuration, in: world)
        self.link = link
        self.trace = link
        self.executor = link.executor
        box.world = self
        self.begin(link)
    }

    /// The link driver's reference to this world, which holds the link.
    final class Unowned: @unchecked Sendable {
        // Proof of Sendable: only accessed on the history's thread.
        weak var world: LinkWorld?
    }

    func random() -> UInt64 { self.generator.next() }

    func begin(_ link: WebSocketLink) {
        let (events, messages) = (link.events, link.messages)
        self.task { world in
            for await event in events { world.happened(event) }
        }
        guard !self.settings.usesHandler else {
            return link.setMessageHandler { [weak self] in self?.handled($0) }
        }
        self.task { world in
            for await message in messages {
                world.received(message)
                await world.pass()
            }
        }
    }

    /// Runs a task on the link's thread, which ends with the link.
    func task(_ body: @escaping @Sendable (LinkWorld) async -> Void) {
        guard #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) else { return }
        Task(executorPreference: self.executor) { [weak self] in
            guard let self else { return }
            await body(self)
            self.endedTasks += 1
        }
    }

    func fail(_ promise: String) {
        if self.broken == nil { self.broken = promise }
    }

    // MARK: The network

    func dial(_ host: String, _ initializer: SimulatedBootstrap.Initializer) -> EventLoopFuture<any Channel> {
        self.checkAttempt(host)
        self.idleSince = nil
        let number = self.peers.count
        let agreement = self.settings.isCompressed ? DeflateAgreement() : nil
        let peer = SimulatedPeer(
            number,
            self.mood,
            agreement,
            self,
            self.loop,
            SeededGenerator(seed: self.generator.next())
        )
        self.peers.append(peer)
        self.states.append(PeerState(host: host, aliveAt: self.loop.now, progressAt: self.loop.now))
        let promise = self.loop.makePromise(of: (any Channel).self)
        self.dials[number] = promise
        initializer(peer.channel).assumeIsolated().whenFailure { _ in peer.channel.close(promise: nil) }
        peer.channel.register0(promise: nil)
        self.loop.execute {
            switch peer.mood.opening {
            case .isAway:
                break
            case .refusesConnections:
                self.dials.removeValue(forKey: number)?.fail(IOError(errnoCode: 111, reason: "connect"))
                peer.channel.close(promise: nil)
            default:
                guard let promise = self.dials.removeValue(forKey: number) else { return }
                peer.channel.activate { promise.succeed(peer.channel) }
            }
        }
        return promise.futureResult
    }

    func checkAttempt(_ host: String) {
        let now = self.loop.now
        if self.life != .wanted { self.fail("a connection is attempted that nobody wants") }
        if let other = self.peers.first(where: { $0.channel.isOpen }) {
            self.fail("a connection is attempted while connection \(other.number) is there")
        }
        if !self.isReachable, self.insisted <= 0 { self.fail("a connection is attempted without a network") }
        if self.isInBackground, self.settings.background != .keepConnected {
            self.fail("a connection is attempted in the background")
        }
        if let time = self.returns[host], now < time {
            self.fail("\(host) is tried \(time - now) sooner than it wants")
        }
    }

    func hasClosed(_ peer: SimulatedPeer) {
        if let promise = self.dials.removeValue(forKey: peer.number) { promise.fail(ChannelError.alreadyClosed) }
        if !peer.isOpen {
            if case .refuses(_, let time?) = peer.mood.opening, peer.deliveredBytes > 0 {
                self.returns[self.states[peer.number].host] = self.loop.now + .seconds(Int64(min(time, 600)))
            }
            if !self.isReachable { self.insisted -= 1 }
        }
    }

    /// Runs all work that takes no time.
    func settle() {
        for _ in 0..<10_000 {
            self.loop.run()
            var hasMoved = false
            for peer in self.peers where !peer.isOver { hasMoved = peer.settle() || hasMoved }
            if !hasMoved { return }
        }
        self.fail("the link and the server never come to rest")
    }

    func advance(_ time: TimeAmount) {
        var rest = time
        while rest > .zero, self.broken == nil {
            let part = min(rest, .milliseconds(500))
            rest = rest - part
            self.loop.advanceTime(by: part)
            self.settle()
            self.checkTimes()
        }
    }

    // MARK: Steps

    /// - Returns: The promise that was broken, if one was.
    func take(_ step: LinkStep) -> String? {
        self.stepNumber += 1
        self.perform(step)
        self.settle()
        self.check()
        return self.broken
    }

    var livePeer: SimulatedPeer? { self.peers.last { !$0.isOver } }

    func perform(_ step: LinkStep) {
        guard let link = self.link else { return }
        switch step {
        case .connect:
            self.connect(link)
        case .disconnect(let code, let hasReason):
            self.disconnect(link, code, hasReason)
        case .send(let length, let isText, let style, let count):
            for _ in 0..<count { self.send(link, length, isText, style) }
        case .cancel(let choice):
            let running = self.unsettled.filter { self.senders[$0] != nil }
            if !running.isEmpty { self.cancel(running[choice % running.count]) }
        case .ping:
            self.ping(link)
        case .mood(let mood):
            self.mood = mood
        case .acceptOpening(let items):
            guard let peer = self.livePeer, peer.isOpening else { return }
            peer.accept()
            for item in items { self.serve(item, peer) }
        case .server(let items):
            guard let peer = self.livePeer else { return }
            for item in items { self.serve(item, peer) }
        case .flood(let count):
            guard let peer = self.livePeer else { return }
            for index in 0..<count {
                self.serve(.message(isText: true, length: 6 + index % 300, fragments: 1), peer)
            }
        case .end(let end):
            self.livePeer?.finish(end)
        case .stopReading:
            self.livePeer?.isReading = false
        case .read(let count):
            if let count { self.livePeer?.allowance += count } else { self.livePeer?.isReading = true }
        case .cut(let isCut):
            self.livePeer?.isCut = isCut
        case .network(let isReachable):
            if isReachable || self.isReachable { self.insisted = 0 }
            self.isReachable = isReachable
            link.networkDidChange(isReachable: isReachable)
        case .background:
            self.isInBackground = true
            link.applicationDidEnterBackground()
        case .foreground:
            self.isInBackground = false
            self.restartRound()
            self.beginAnew()
            link.applicationWillEnterForeground()
        case .hold:
            self.isHeld = true
            self.allowance = 0
        case .receive(let count):
            if let count { self.allowance += count } else { self.isHeld = false }
            self.openGate()
        case .switchServer:
            guard self.settings.serverCount > 1 else { return }
            self.isSwitching = true
            self.restartRound()
            link.switchServer()
        case .time(let milliseconds):
            self.advance(.milliseconds(Int64(milliseconds)))
        }
    }

    /// Abandons the current round, and starts over.
    func restartRound() {
        let isTrying = self.peers.contains { $0.channel.isOpen && !self.states[$0.number].wasOpened }
        if isTrying, self.insisted > 0 { self.insisted = self.settings.serverCount + 1 }
    }

    func connect(_ link: WebSocketLink) {
        // A ready connection that stays is enough.
        if self.openPeer.map({ self.states[$0.number].ownClose != nil }) ?? true {
            self.insisted = self.settings.serverCount
            self.returns = [:]
        }
        self.hasRunOut = false
        self.life = .wanted
        link.connect()
    }

    /// Starts the link's attempts again if they have run out.
    func beginAnew() {
        guard self.hasRunOut else { return }
        self.hasRunOut = false
        self.insisted = self.settings.serverCount
        self.returns = [:]
        self.life = .wanted
    }

    func disconnect(_ link: WebSocketLink, _ code: UInt16, _ hasReason: Bool) {
        let close = WebSocketClose(code: code, reason: hasReason ? "enough" : "")
        if let peer = self.openPeer, !peer.isOver, self.states[peer.number].ownClose == nil {
            self.states[peer.number].ownClose = close
            self.states[peer.number].ownCloseAt = self.loop.now
        }
        self.life = .closed
        self.hasRunOut = false
        do throws(SocketError) {
            try link.disconnect(code: code, reason: close.reason)
        } catch {
            self.fail("disconnect fails: \(error)")
        }
    }

    func serve(_ item: ServerItem, _ peer: SimulatedPeer) {
        self.serverCount += 1
        switch item {
        case .message(_, let length, _): peer.send(item, SentMessage.payload(self.serverCount, length))
        case .request(let count): peer.send(item, ByteBuffer(string: "send \(count) \(self.serverCount)"))
        case .ping: peer.send(item, ByteBuffer(string: "\(self.serverCount)"))
        case .pong, .close, .violation: peer.send(item)
        }
    }

    // MARK: Events

    func happened(_ event: WebSocketLink.Event) {
        switch event {
        case .opened(_, let subprotocol, let headers):
            if self.openPeer != nil { self.fail("opened, and not closed before") }
            let number = headers.first { $0.name == "X-Number" }.flatMap { Int($0.value) }
            guard let number, number == self.peers.count - 1, subprotocol == "b" else {
                return self.fail("opened with \(headers) and subprotocol \(subprotocol ?? "none")")
            }
            self.openPeer = self.peers[number]
            self.states[number].wasOpened = true
            self.isSwitching = false
            self.insisted = 0
            self.ghosts = 0
            self.hasEverOpened = true
        case .closed(let closure):
            guard let peer = self.openPeer else { return self.fail("closed, and not opened before") }
            self.openPeer = nil
            self.ghosts = 0
            self.closed(closure, peer, self.states[peer.number])
        case .connection(.gaveUp(let error)):
            self.life = .closed
            // After a close frame has ended the link, only connect() starts it again.
            self.hasRunOut = !(error.underlying is WebSocketClosure) && error.code != .protocolViolation
        case .connection(.closed):
            self.life = .closed
        case .connection:
            break
        }
    }

    func closed(_ closure: WebSocketLink.Closure, _ peer: SimulatedPeer, _ state: PeerState) {
        var allowed: [String] = []
        let reported = Self.text(closure.code, closure.reason, closure.wasClean, closure.error != nil)
        if let close = state.deliveredClose {
            allowed.append(Self.text(close.code ?? 1_005, close.reason, true, true))
        } else {
            allowed.append(Self.text(1_006, "", false, true))
        }
        if let close = state.ownClose {
            let isClean = state.deliveredClose != nil
            allowed.append(Self.text(close.code ?? 0, self.settings.expectsReason ? close.reason : "", isClean, false))
            // The connection ends by itself at this moment.
            if state.deliveredClose == nil, state.closeWrittenAt != nil { allowed.removeFirst() }
        }
        // The connection is closed with the link.
        if self.link == nil { allowed.append(Self.text(1_000, "", state.deliveredClose != nil, false)) }
        if !allowed.contains(reported) { self.fail("closed with \(reported), and should be one of \(allowed)") }
        // A connection that the link leaves by itself is left regardless of the server.
        guard closure.error != nil, !self.isInBackground, !self.isSwitching else { return }
        let code = state.deliveredViolation.map { ServerItem.violations[$0].code } ?? state.deliveredClose?.code
        if let code, !WebSocketLink.Configuration.reconnectsByDefault(after: code) { self.mustHaveEnded = true }
    }

    static func text(_ code: UInt16, _ reason: String, _ isClean: Bool, _ isError: Bool) -> String {
        "\(code) '\(reason)'\(isClean ? ", clean" : "")\(isError ? ", an error" : "")"
    }
}
