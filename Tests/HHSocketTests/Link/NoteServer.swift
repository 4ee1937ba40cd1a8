// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A server of the note language, on the link type that clients use too: it answers texts with the prefix "re: ".
final class NoteServer: @unchecked Sendable {
    // Proof of Sendable: the log is locked; the sessions are only accessed on the loop's thread.
    struct Log: Sendable {
        var received: [Note] = []
        var beats = 0
        /// The current number of connections, and its maximum so far.
        var connections = 0
        var mostConnections = 0
        var accepted = 0
        var ends: [String] = []
    }

    fileprivate let log = NIOLockedValueBox(Log())
    private let loop: SocketLoop
    private let channel: any Channel
    private let sessions = NIOLockedValueBox<[UInt64: NoteSession]>([:])

    var endpoint: Endpoint { Endpoint(host: "127.0.0.1", port: self.channel.localAddress?.port ?? 0) }
    var now: Log { self.log.withLockedValue { $0 } }

    private init(_ channel: any Channel, _ loop: SocketLoop) {
        self.channel = channel
        self.loop = loop
    }

    /// - Parameters:
    ///   - time: The clock of its connections; the system's by default.
    ///   - beats: The beats of each connection.
    ///   - configure: Called with each session before its link is in a pipeline.
    static func start(
        time: SocketTime = SocketTime(),
        beats: @escaping @Sendable (Duration?, NIODeadline) -> Beats? = { _, _ in nil },
        configure: @escaping @Sendable (NoteSession) -> Void = { _ in }
    ) async throws -> NoteServer {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let loop = SocketLoop(eventLoop: eventLoop, time: time)
        let server = NIOLockedValueBox<NoteServer?>(nil)
        let accepted = NIOLockedValueBox<[any Channel]>([])
        let channel = try await ServerBootstrap(group: eventLoop)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.writeBufferWaterMark, value: LinkChannel.waterMarks)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let server = server.withLockedValue({ $0 }) else {
                        return accepted.withLockedValue { $0.append(channel) }
                    }
                    try server.add(channel, beats, configure)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let made = NoteServer(channel, loop)
        server.withLockedValue { $0 = made }
        return made
    }

    private func add(
        _ channel: any Channel,
        _ beats: @escaping @Sendable (Duration?, NIODeadline) -> Beats?,
        _ configure: (NoteSession) -> Void
    ) throws {
        let number = self.log.withLockedValue { log in
            log.accepted += 1
            log.connections += 1
            log.mostConnections = max(log.mostConnections, log.connections)
            return UInt64(log.accepted)
        }
        var settings = LinkSettings<Note>(maximumQueuedBytes: .max, beats: beats, makeBeat: { .beat })
        settings.readsOnlyWhileWritable = true
        settings.partingTime = .seconds(5)
        let session = NoteSession(number, self)
        let link = Link(
            id: ConnectionID(number: number),
            loop: self.loop,
            language: NoteLanguage(),
            settings: settings,
            host: session
        )
        session.link = link
        link.receiver = session
        configure(session)
        self.sessions.withLockedValue { $0[number] = session }
        try channel.pipeline.syncOperations.addHandler(link)
        self.loop.enter { link.startBeats(interval: nil, in: &$0) }
    }

    fileprivate func ended(_ number: UInt64) {
        self.sessions.withLockedValue { $0[number] = nil }
        self.log.withLockedValue { $0.connections -= 1 }
    }

    /// Runs `body` for each session, in one turn.
    func each(_ body: @escaping @Sendable (NoteSession, inout Turn) -> Void) {
        self.loop.submit(
            .closure { turn in
                let sessions = self.sessions.withLockedValue { $0.sorted { $0.key < $1.key }.map(\.value) }
                for session in sessions { body(session, &turn) }
            }
        )
    }

    /// Runs `body` for each session, and waits for the end.
    func doToEach(_ body: @escaping @Sendable (NoteSession, inout Turn) -> Void) async {
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
            self.each(body)
            self.loop.submit(.closure { _ in done.resume() })
        }
    }

    /// Suspends or resumes reading of all sessions.
    func setReading(isSuspended: Bool) async {
        await self.doToEach { session, turn in session.link?.setReading(isSuspended: isSuspended, in: &turn) }
    }

    /// Says bye to each client, answers received notes, and closes.
    func drain() {
        self.each { session, turn in session.link?.close(.done, in: &turn) }
    }

    func stop() async throws {
        self.each { session, _ in session.link?.kill() }
        try await self.channel.close()
    }
}

/// One client of a ``NoteServer``.
final class NoteSession: LinkReceiver, LinkHost, @unchecked Sendable {
    // Proof of Sendable: only accessed on the loop's thread.
    typealias Language = NoteLanguage

    let number: UInt64
    var link: Link<NoteLanguage>?
    /// Whether a client that says bye is answered, and its connection closed.
    var answersBye = true
    private let server: NoteServer

    init(_ number: UInt64, _ server: NoteServer) {
        self.number = number
        self.server = server
    }

    func received(_ batch: inout Batch<NoteLanguage>, in turn: inout Turn) throws(LinkError) {
        while let note = try batch.next() {
            switch note.kind {
            case .beat:
                self.server.log.withLockedValue { $0.beats += 1 }
            case .bye:
                self.server.log.withLockedValue { $0.received.append(note) }
                guard self.link?.phase == .open else { return self.link?.peerAnsweredClose(in: &turn) ?? () }
                // A client that says bye first gets ours, and then the connection ends.
                if self.answersBye {
                    self.link?.close(.done, in: &turn)
                    self.link?.peerAnsweredClose(in: &turn)
                }
            case .text, .blob, .part:
                self.server.log.withLockedValue { $0.received.append(note) }
                if note.kind == .text { self.link?.send(.text("re: " + note.text), in: &turn) }
            }
        }
    }

    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
        switch change {
        case .ended(let end):
            self.server.log.withLockedValue { $0.ends.append("\(end.cause)") }
        case .inputClosed:
            self.link?.close(.done, in: &turn)
        case .gone:
            self.link = nil
            self.server.ended(self.number)
        case .active, .alive, .beat, .beatSent, .beatFailed:
            break
        }
    }
}
