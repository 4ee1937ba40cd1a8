// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import Logging
import NIOCore

/// A step of a connection before it is served: its cost, and the time that it may take, are those of ``ServerPeer``.
enum PeerStage {
    /// A proxy's header is awaited.
    case header
    /// The client's first bytes are awaited, and then its turn of the TLS handshakes.
    case handshakeWait
    case handshake
    /// The opening of a WebSocket, or whatever shows that there is none.
    case opening
}

/// A peer of the server, from its acceptance until its connection has ended, whatever it speaks. It is charged,
/// watched, identified, counted and closed here; its ``PeerSession`` carries that out in its language. On its event
/// loop.
final class ServerPeer: LinkHost {
    /// Begins a peer whose channel is connected already.
    typealias Begin = (inout Turn) -> Void

    private enum Phase {
        /// Its address, TLS, or its language is being found out.
        case arriving
        case open
        /// It is being sent away, and never was open.
        case refused
        case ended
    }

    /// Indirect, since few peers have one.
    private indirect enum Refusal { case with(GoAway) }

    /// The time after which a request in flight no longer spares a peer that has sent nothing meanwhile, such as a long
    /// poll.
    private static let longestPoll = TimeAmount.seconds(60)

    // In an order in which small properties fill the gaps between others: there is one for each connection.
    let loop: ServerLoop
    let parts: ServerParts
    let account: LedgerAccount
    let listener: ListenerSettings
    private let channel: any Channel
    private let port: PeerPort
    private var session: (any PeerSession)?
    private var link: (any PeerLink)?
    /// The reason for which this peer is closed immediately; nil: it is served.
    private var refusal: Refusal?
    private var clientAddress: SocketAddress?
    private var phase = Phase.arriving
    private var isUnknown = false
    /// The reason why it ends, once it does.
    private var closeReason: ServerCloseReason?
    /// The number of stages so far.
    private var stageCount: UInt32 = 0
    private var watch: PeerWatch
    private var silenceKey: SlotKey?
    /// The units that are of no use and that it may still send.
    private var unproductive: TokenBucket?
    /// Ends the stage.
    private var timer: SocketLoop.TimerID?
    private var chargedControlFrames = 0
    /// The number of the last broadcast that was for it.
    private var lastBroadcast: UInt64 = 0

    init(on channel: any Channel, _ loop: ServerLoop, parts: ServerParts, listener: ListenerSettings) {
        self.channel = channel
        self.loop = loop
        self.parts = parts
        self.listener = listener
        let now = parts.books.time.now()
        self.account = LedgerAccount(parts.books.ledger, shard: loop.index, baseCost: ConnectionCost.waitingHandshake)
        self.port = PeerPort(on: loop.socketLoop, self.account, parts.books.registry)
        self.watch = PeerWatch(now: now)
        self.unproductive = parts.rules.limits.unproductiveFrameRate.map { TokenBucket($0, now: now) }
        self.port.open(self)
        self.account.open(from: nil, holder: self.port)
    }

    /// The client's address, which behind a proxy differs from the socket's peer; nil if it is unknown.
    var address: SocketAddress? { self.clientAddress }
    /// Whether it still has to identify itself.
    var isStranger: Bool { self.isUnknown }

    // MARK: Arrival

    /// Begins a stage, which costs memory and ends at the next one, when the peer is open, or with the channel.
    ///
    /// - Parameters:
    ///   - address: The client's address, as far as it is known.
    ///   - time: How long it may take.
    ///   - expired: Called when it takes longer.
    func enter(
        _ stage: PeerStage,
        from address: SocketAddress?,
        within time: TimeAmount,
        otherwise expired: @escaping () -> Void
    ) {
        // Where the server shuts down, nothing begins.
        guard self.loop.draining == nil, self.phase == .arriving else { return self.channel.close(promise: nil) }
        self.account.setAddress(ClientAddress(address))
        self.account.changeBaseCost(to: self.cost(of: stage))
        self.loop.add(self, isOpen: false)
        self.limit(to: time, otherwise: expired)
    }

    private func cost(of stage: PeerStage) -> Int {
        switch stage {
        // A handshake has a hold of its own.
        case .header, .handshakeWait, .handshake: ConnectionCost.waitingHandshake
        case .opening: self.listener.connectionCost
        }
    }

    /// Gives the stage another time, from now on.
    func limit(to time: TimeAmount, otherwise expired: @escaping () -> Void) {
        self.endStage()
        let stage = self.stageCount
        self.loop.socketLoop.enter { turn in
            guard self.stageCount == stage, self.phase != .ended else { return }
            self.timer = self.loop.socketLoop.setTimer(turn.now.advanced(clamping: time)) { _ in
                self.timer = nil
                expired()
            }
        }
    }

    /// Ends the time limit of a stage: what follows has its own.
    func endStage() {
        self.stageCount += 1
        if let timer = self.timer.take() { self.loop.socketLoop.removeTimer(timer) }
    }

    /// The client's address is known, and whether it is one too many.
    func arrived(from address: SocketAddress?, refusal: GoAway?) {
        self.clientAddress = address
        self.refusal = refusal.map { .with($0) }
    }

    func channelClosed() {
        guard self.phase == .arriving, self.link == nil else { return }
        self.end()
    }

    // MARK: The link

    /// Makes the peer's link, which is charged, watched and judged here: no language need name the rules of links.
    func makeLink<Language>(_ language: Language, _ settings: LinkSettings<Language.Unit>) -> Link<Language> {
        var settings = settings
        settings.readsOnlyWhileWritable = true
        settings.sharesTurns = true
        // The watch judges it.
        settings.writeStallTimeout = nil
        return Link(
            id: ConnectionID(number: self.refusal == nil ? self.parts.books.nextConnectionID() : 0),
            loop: self.loop.socketLoop,
            language: language,
            settings: settings,
            host: self
        )
    }

    /// The peer speaks the language of this session from now on. It begins when its link is active.
    ///
    /// - Parameter isStranger: Whether it must identify itself.
    func serve(_ session: any PeerSession, over link: some PeerLink, isStranger: Bool = false) {
        self.session = session
        self.link = link
        self.isUnknown = isStranger
        self.watch = PeerWatch(now: self.parts.books.time.now(), isStranger: self.isStranger)
    }

    /// Puts a link into a channel's pipeline.
    func add<Language>(
        _ link: Link<Language>,
        to operations: ChannelPipeline.SynchronousOperations,
        position: ChannelPipeline.SynchronousOperations.Position = .last
    ) throws {
        do {
            try operations.addHandler(link, position: position)
        } catch {
            // It will never report its end, and we retain each other.
            link.host = nil
            link.receiver = nil
            self.end()
            throw error
        }
    }

    /// Detaches from a channel on which another peer begins: a WebSocket of messages, on a port for both.
    func detach<Language>(_ link: Link<Language>, _ operations: ChannelPipeline.SynchronousOperations) {
        self.ends(.upgraded)
        self.end()
        operations.removeHandler(link, promise: nil)
    }

    // MARK: The beginning

    /// The application's decision on a client that has connected.
    enum Decision {
        case admit(identity: String?)
        case refuse(GoAway)
    }

    func decide(_ context: ChannelHandlerContext) -> Decision {
        let client = ConnectingClient(self.address, context, listener: self.listener.endpoint)
        switch self.parts.rules.connections.admit?(client) {
        case nil, .admit: return .admit(identity: nil)
        case .admitAs(let name): return .admit(identity: name)
        case .refuse(let reason, let retryAfter):
            self.loop.counters.count(.connectionsRefusedByAdmission)
            return .refuse(GoAway(reason: reason, retryAfter: retryAfter))
        }
    }

    /// The link is in the pipeline of a connected channel.
    ///
    /// - Parameter decision: The decision on the client, if there is one.
    func begin(_ decision: Decision? = nil, in turn: inout Turn) {
        guard self.phase == .arriving, let session = self.session, let link = self.link, let context = link.context
        else { return }
        self.endStage()
        // Accepted during the server's shutdown, by a loop that had no other connection, or after all connections were
        // closed and before the listener was: that client would be asked to leave, and might stay forever.
        guard self.loop.mayBegin else { return self.kill() }
        if case .with(let notice) = self.refusal { return self.refuse(notice, in: &turn) }
        switch decision ?? self.decide(context) {
        case .refuse(let notice): self.refuse(notice, in: &turn)
        case .admit(let identity):
            self.phase = .open
            self.account.setAddress(ClientAddress(self.address))
            self.account.changeBaseCost(to: self.listener.connectionCost)
            link.charge(to: self.account)
            self.port.admit(link.id.number, as: identity)
            self.loop.counters.count(.connectionsAccepted)
            self.lastBroadcast = self.loop.add(self, isOpen: true)
            self.log("a client has connected", at: .debug)
            session.opened(self.port, in: &turn)
            if let policy = self.loop.draining { self.drain(policy, in: &turn) }
        }
    }

    private func refuse(_ notice: GoAway, in turn: inout Turn) {
        self.phase = .refused
        self.loop.add(self, isOpen: false)
        self.say(Farewell(kind: .violation, reason: notice.reason, retryAfter: notice.retryAfter ?? .zero), in: &turn)
    }

    // MARK: Changes

    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
        switch change {
        case .active: self.begin(in: &turn)
        case .inputClosed:
            self.ends(.closedByClient)
            self.session?.inputClosed(in: &turn)
        case .beatSent: self.session?.beatSent(in: &turn)
        case .beatFailed(let error):
            let metadata: Logger.Metadata = ["connection": "\(id)", "error": "\(type(of: error))"]
            self.parts.books.peerLog.write(
                .warning,
                "a heartbeat could not be created",
                metadata: metadata,
                by: self.parts.books.logger
            )
        case .ended(let end):
            if self.phase != .ended {
                if case .peerIsDead = end.cause { self.loop.counters.count(.deadPeers) }
                if case .writeStalled = end.cause { self.loop.counters.count(.writeStalls) }
            }
            self.ends(ServerCloseReason(end.cause))
            // A link that parts sends its last units.
            if self.link?.isOver != false { self.end() } else { self.session?.inputClosed(in: &turn) }
        case .gone: self.end()
        case .alive, .beat: break
        }
    }

    /// Hello has led to an agreement, or the identity has changed: the limits that follow apply from now on.
    ///
    /// - Returns: Whether anything has changed.
    func standingChanged(isStranger: Bool, now: NIODeadline) -> Bool {
        guard isStranger != self.isStranger else { return false }
        self.isUnknown = isStranger
        self.watch.standingChanged(isStranger: isStranger, now: now)
        return true
    }

    /// Whether the server requires an identity, and the peer has none.
    var lacksIdentity: Bool { self.parts.rules.requiresIdentity && self.port.identity == nil }

    func authenticationChanged(isUnderWay: Bool, now: NIODeadline) {
        self.watch.authenticationChanged(isUnderWay: isUnderWay, now: now)
    }

    func introductionChanged(isOver: Bool, now: NIODeadline) {
        self.watch.introductionChanged(isOver: isOver, now: now)
    }

    /// Adds the counts of the event loop's sessions to those that can be read: called before what they count leaves.
    func takeCounts() { self.loop.counters.take(self.loop.sessionCounts) }

    // MARK: Looks

    /// Whether nothing is read from the peer for now.
    var isReadingHeld: Bool { self.link?.state.isReadingHeld ?? false }

    private var isOpen: Bool { self.phase == .open && self.link?.isOpen == true }

    /// Checks the rules of progress, from time to time.
    func check(in turn: inout Turn) {
        let now = turn.now
        self.loop.silence.check(self, now: now)
        guard self.phase == .open, let link = self.link, link.context != nil, let session = self.session else { return }
        link.settleNow()
        self.account.settle()
        let state = session.state()
        if state.waitingBytes > self.parts.rules.limits.maximumBufferedBytesPerConnection {
            return self.evict(.memory, in: &turn)
        }
        self.charge(controlFrames: state.controlFrames, in: &turn)
        guard self.phase == .open else { return }
        let finding = self.watch.check(link: link.state, state, self.listener.times, now: now)
        if finding.hasProgressed { self.account.progressed(at: now) }
        if finding.rests { _ = self.rest() }
        guard let verdict = finding.verdict else { return }
        if verdict == .stalledReading, self.isOpen, session.giveUpPartial(in: &turn) {
            // The length of the unit may be wrong: then it would withhold data forever.
            return self.watch.partialWasGivenUp()
        }
        if self.isOpen {
            self.evict(.watch(verdict), in: &turn)
        } else if verdict == .stalledWriting {
            // The last word is not read.
            self.loop.counters.count(.writeStalls)
            self.kill()
        }
    }

    /// Frees memory that is kept for more traffic. Returns the number of bytes that were the link's.
    func rest() -> Int {
        let freed = self.link?.releaseRest() ?? 0
        self.parts.books.ledger.freed(freed)
        self.session?.rest()
        return freed
    }

    private func charge(controlFrames count: Int, in turn: inout Turn) {
        let new = count - self.chargedControlFrames
        self.chargedControlFrames = count
        if new > 0 { self.charge(unproductive: new, in: &turn) }
    }

    /// Charges units that are of no use. A peer that sends too many is closed.
    func charge(unproductive count: Int, in turn: inout Turn) {
        if self.unproductive?.take(count, now: turn.now) == false { self.evict(.flood, in: &turn) }
    }

    // MARK: The end

    /// Records why the peer ends, unless it ends already.
    func ends(_ reason: ServerCloseReason) {
        if self.closeReason == nil { self.closeReason = reason }
    }

    func evict(_ eviction: Eviction, in turn: inout Turn) {
        guard self.phase != .arriving else { return self.kill() }
        guard self.isOpen, let link = self.link else { return }
        self.loop.counters.count(eviction.counter)
        self.ends(eviction.closeReason)
        self.log("a client is closed", eviction.reason(self.parts.rules.limits))
        guard let farewell = eviction.farewell(self.parts.rules.limits, isWritable: link.isWritable) else {
            return self.kill()
        }
        self.say(farewell, in: &turn)
        guard case .silence = eviction else { return }
        // The descriptor is needed now, and one that is silent has sent nothing that could reset the connection.
        _ = self.loop.socketLoop.setTimer(turn.now + LoopSilence.lastWordTime) { _ in self.kill() }
    }

    /// Says to the peer why it is closed, and closes it.
    func say(_ farewell: Farewell, in turn: inout Turn) {
        guard self.link?.isOpen == true else { return }
        self.ends(.closedByServer)
        guard self.session?.say(farewell, in: &turn) == true else { return self.kill() }
        if farewell.kind == .memory { self.link?.discardIncoming(in: &turn) }
    }

    /// Closes at once.
    func kill() {
        self.ends(.shutdown)
        let link = self.link
        self.end()
        if let link { link.kill() } else { self.channel.close(promise: nil) }
    }

    /// Everything ends here, once.
    private func end() {
        guard self.phase != .ended else { return }
        let wasOpen = self.phase == .open
        self.phase = .ended
        self.endStage()
        self.loop.remove(self, wasOpen: wasOpen)
        if wasOpen { self.log("a connection has ended", at: .debug) }
        self.session?.ended(self.closeReason ?? .connectionLost)
        self.account.close()
        self.port.close()
        // They retain each other.
        (self.session, self.link) = (nil, nil)
    }

    // MARK: The log

    func log(_ what: String, _ reason: String? = nil, at level: Logger.Level = .info) {
        self.parts.books.peerLog.write(level, "\(what)", metadata: self.metadata(reason), by: self.parts.books.logger)
    }

    private func metadata(_ reason: String?) -> Logger.Metadata {
        var metadata: Logger.Metadata = [
            "connection": "\(self.link?.id.number ?? 0)", "remote": "\(self.address.map { "\($0)" } ?? "unknown")",
        ]
        if let reason { metadata["reason"] = "\(reason)" }
        return metadata
    }
}

extension ServerPeer: PortedPeer {
    var streamHost: (any StreamHost)? { self.session?.streamHost }

    func identityChanged(in turn: inout Turn) { self.session?.identityChanged(in: &turn) }

    func push(_ push: SharedPush, in turn: inout Turn) -> Bool { self.session?.push(push, in: &turn) ?? false }
}

extension ServerPeer: LoopPeer {
    var isArriving: Bool { self.phase == .arriving }

    func push(_ pushes: [PushQueue.Push?], number: UInt64, in turn: inout Turn) -> Bool {
        guard self.phase == .open, self.lastBroadcast < number else { return false }
        self.lastBroadcast = number
        return self.session?.push(.encoded(pushes), in: &turn) ?? false
    }

    func drain(_ policy: ShutdownPolicy, in turn: inout Turn) {
        guard self.phase != .arriving else { return self.kill() }
        guard self.isOpen else { return }
        self.ends(.shutdown)
        self.session?.drain(policy, in: &turn)
    }

    /// The shutdown's patience is over.
    func stop(in turn: inout Turn) {
        guard self.isOpen, self.session?.stop(in: &turn) == true else { return self.kill() }
    }
}

extension ServerPeer: SilentConnection {
    var silenceSlot: SlotKey? {
        get { self.silenceKey }
        set { self.silenceKey = newValue }
    }

    var bytesReceived: Int { self.link?.bytesReceived ?? 0 }

    /// Whether the server is at work for the peer. A stream that waits for its client is none of that: otherwise a
    /// client would spare itself by never giving credit.
    var isBusy: Bool {
        guard self.phase == .open, let session = self.session else { return false }
        return session.workOfOurs > 0 && self.watch.silence(now: self.parts.books.time.now()) < Self.longestPoll
    }

    func closeForNewcomer(in turn: inout Turn) {
        if self.isOpen { self.evict(.silence, in: &turn) } else { self.kill() }
    }
}
