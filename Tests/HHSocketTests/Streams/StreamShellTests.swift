// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore
import NIOEmbedded
import Testing

/// The shell of both ends' streams, on a link whose channel and clock are embedded.
@Suite struct StreamShellTests {
    @Test func theItemsOfAReadAreDeliveredTogether() throws {
        let world = try ClientWorld()
        let (one, other) = (world.open(1, "one"), world.open(2, "other"))
        world.turn { turn in
            for serial in [one, other, one, one] { world.receive(serial, .partial, in: &turn) }
            #expect(world.log.isEmpty)
            world.shell.tend(in: &turn)
        }
        #expect(world.log == ["one: 3 items", "other: 1 items"])
    }

    @Test func anEndIsReportedOnceAndAfterTheItems() throws {
        let world = try ClientWorld()
        let serial = world.open(1, "one")
        world.turn { turn in
            world.receive(serial, .partial, in: &turn)
            world.receive(serial, .ok, in: &turn)
            world.receive(serial, .ok, in: &turn)
            world.shell.tend(in: &turn)
            world.shell.lose(in: &turn)
        }
        #expect(world.log == ["one: 1 items", "one: ended", "ended 1"])
        #expect(world.shell.count == 0)
    }

    @Test func itemsAreSentOnceTheSendingOfTheOpeningHasBegun() throws {
        let world = try ClientWorld()
        world.turn { turn in
            let (party, id) = world.enter(1, "one")
            party.port.open(compression: nil)
            _ = party.port.put(ByteBuffer(string: "item"), isCompressed: false) {}
            world.shell.settle(party, id, in: &turn)
            #expect(world.log.isEmpty)
            world.shell.tend(in: &turn)
            #expect(world.log == ["sends \(world.type)"])
            world.shell.openingHasLeft(1, in: &turn)
        }
        #expect(world.log == ["sends \(world.type)", "one: sent 1", "sends \(FrameType.item)"])
    }

    /// What an action leads to is performed and sent after it, and not within it.
    @Test func aChangeWithinAnActionWaitsForItsEnd() throws {
        let world = try ClientWorld()
        world.side.onWhole = { [unowned world] turn in
            world.shell.change(in: &turn) { $0.sendPlain(Frame(type: world.type, serial: 9)) }
            world.side.log.lines.append("whole is over")
        }
        world.turn { turn in
            world.receive(7, .ok, flags: FrameType.continuesFlag, isAwaited: true, in: &turn)
            world.receive(7, .ok, isAwaited: true, in: &turn)
            #expect(world.log == ["whole 7", "whole is over"])
            #expect(!world.shell.isQuiet)
            world.shell.tend(in: &turn)
        }
        #expect(world.log == ["whole 7", "whole is over", "sends \(world.type)"])
        #expect(world.shell.isQuiet)
    }

    @Test func afterTheEndNothingIsPerformedAndTheSideIsReleased() throws {
        let log = Log()
        weak var released: Side?
        let channel = EmbeddedChannel()
        let (loop, link) = try embeddedLink(channel)
        let shell = StreamShell(ClientStreams(), over: link)
        do {
            let side = Side(log)
            released = side
            shell.begin(side)
            let id = shell.with { $0.open(type: 1_000, serial: 1, kind: .bidirectional, now: .now()) }
            shell.add(Party("one", log), as: id, serial: 1)
            shell.abandon()
        }
        #expect(released == nil)
        loop.enter { turn in
            _ = shell.receive(ArrivedFrame(Frame(type: 1_000, serial: 1)), isDamaged: false, in: &turn)
            shell.tend(in: &turn)
        }
        #expect(log.lines.isEmpty && shell.count == 0 && shell.isQuiet)
        _ = try channel.finish()
    }

    @Test func aBurstIsLimitedAndContinuesOnceThereIsRoom() throws {
        let log = Log()
        let channel = EmbeddedChannel()
        let (loop, link) = try embeddedLink(channel)
        let shell = StreamShell(ServerStreams(), over: link, largestBurst: 1_000)
        let side = Side(log)
        shell.begin(side)
        shell.with { machine in
            for serial in 1...4 {
                machine.sendPlain(type: 1_000, serial: UInt32(serial), payload: ByteBuffer(repeating: 1, count: 400))
            }
        }
        loop.enter { turn in
            let first = shell.tend(in: &turn)
            #expect(first && log.lines.count == 3 && shell.wantsRoom && link.reportsRoom)
            let second = shell.tend(in: &turn)
            #expect(second && log.lines.count == 4 && shell.wantsRoom)
            let third = shell.tend(in: &turn)
            #expect(!third && !shell.wantsRoom && !link.reportsRoom)
        }
        shell.abandon()
        _ = try channel.finish()
    }

    @Test func aStreamThatDoesNotMoveIsEndedByTheTimer() throws {
        var settings = StreamSettings()
        settings.idleLimit = .seconds(10)
        let world = try ClientWorld(settings)
        _ = world.open(1, "one")
        world.advance(.seconds(5))
        _ = world.open(2, "other")
        world.advance(.seconds(6))
        #expect(world.log == ["sends \(FrameType.cancel)", "one: ended", "ended 1"])
        world.advance(.seconds(6))
        #expect(world.log.suffix(3) == ["sends \(FrameType.cancel)", "other: ended", "ended 2"])
    }
}

private final class Log {
    var lines: [String] = []
}

private final class Party: StreamParty {
    let port = StreamPort(inbox: Inbox(.items(detaching: .behind), account: nil), account: nil, largestRoom: 1 << 20)
    private let name: String
    private let log: Log

    init(_ name: String, _ log: Log) {
        self.name = name
        self.log = log
    }

    func received(_ items: inout Deque<StreamItem>, in turn: inout Turn) {
        self.log.lines.append("\(self.name): \(items.count) items")
        self.port.inbox.append(contentsOf: &items)
    }

    func sent(_ items: StreamPort.Settled) { self.log.lines.append("\(self.name): sent \(items.count)") }

    func resume(_ sender: StreamPort.Sender, in turn: inout Turn) {}

    func ended(_ end: StreamEnd, in turn: inout Turn) { self.log.lines.append("\(self.name): ended") }
}

private final class Side: StreamSide {
    let log: Log
    var onWhole: (inout Turn) -> Void = { _ in }

    init(_ log: Log) { self.log = log }

    func receivedPayload(_ frame: Frame, in turn: inout Turn) {
        self.log.lines.append("whole \(frame.serial)")
        self.onWhole(&turn)
    }

    func receivedBrokenPayload(_ failure: PayloadFailure, type: UInt32, serial: UInt32, in turn: inout Turn) {
        self.log.lines.append("broken \(serial)")
    }

    func willSend(_ frame: inout Frame, in turn: inout Turn) -> Bool {
        self.log.lines.append("sends \(frame.type)")
        return true
    }

    func ended(_ id: StreamID, serial: UInt32, _ end: StreamEnd, in turn: inout Turn) {
        self.log.lines.append("ended \(serial)")
    }

    func faulted(_ fault: StreamFault, in turn: inout Turn) { self.log.lines.append("\(fault)") }

    func settled(in turn: inout Turn) {}
}

/// A clock whose alarms ring on the thread of the test.
///
/// Proof of Sendable: only that thread uses it.
private final class StillTime: TimeSource, @unchecked Sendable {
    private var time = NIODeadline.uptimeNanoseconds(1)
    private var alarms: [(number: UInt64, deadline: NIODeadline, body: @Sendable () -> Void)] = []
    private var count: UInt64 = 0

    func now() -> NIODeadline { self.time }

    func setAlarm(at deadline: NIODeadline, on _: any EventLoop, _ body: @escaping @Sendable () -> Void) -> UInt64 {
        self.count += 1
        self.alarms.append((self.count, deadline, body))
        return self.count
    }

    func setAlarm(at _: NIODeadline, _: @escaping @Sendable () async -> Void) -> UInt64 { 0 }

    func cancelAlarm(_ number: UInt64) { self.alarms.removeAll { $0.number == number } }

    func advance(by amount: TimeAmount) {
        self.time = self.time + amount
        while let index = self.alarms.firstIndex(where: { $0.deadline <= self.time }) {
            self.alarms.remove(at: index).body()
        }
    }
}

/// A link that is connected to nothing.
private func embeddedLink(
    _ channel: EmbeddedChannel,
    _ time: StillTime = StillTime()
) throws -> (SocketLoop, Link<FrameLanguage>) {
    let loop = SocketLoop(eventLoop: channel.embeddedEventLoop, time: SocketTime(time))
    let link = Link(
        id: ConnectionID(number: 1),
        loop: loop,
        language: FrameLanguage(
            decoder: FrameDecoder(direction: .response),
            encoder: FrameEncoder(direction: .request)
        ),
        settings: LinkSettings<Frame>(maximumQueuedBytes: .max)
    )
    try channel.pipeline.syncOperations.addHandler(link)
    try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
    return (loop, link)
}

/// A client's shell, with the log of what it reports.
private final class ClientWorld {
    let type: UInt32 = 1_000
    let side: Side
    let shell: StreamShell<ClientStreams>
    private let channel = EmbeddedChannel()
    private let time = StillTime()
    private let loop: SocketLoop
    private let link: Link<FrameLanguage>

    init(_ settings: StreamSettings = StreamSettings()) throws {
        let side = Side(Log())
        self.side = side
        (self.loop, self.link) = try embeddedLink(self.channel, self.time)
        self.shell = StreamShell(ClientStreams(settings), over: self.link)
        self.shell.begin(side)
    }

    deinit {
        self.shell.abandon()
        _ = try? self.channel.finish()
    }

    var log: [String] { self.side.log.lines }

    func turn(_ body: @escaping (inout Turn) -> Void) { self.loop.enter(body) }

    func advance(_ time: TimeAmount) { self.time.advance(by: time) }

    func enter(_ serial: UInt32, _ name: String) -> (Party, StreamID) {
        let (party, now) = (Party(name, self.side.log), self.time.now())
        let id = self.shell.with { $0.open(type: self.type, serial: serial, kind: .bidirectional, now: now) }
        self.shell.add(party, as: id, serial: serial)
        return (party, id)
    }

    /// Opens a stream and sends its opening.
    func open(_ serial: UInt32, _ name: String) -> UInt32 {
        _ = self.enter(serial, name)
        self.turn { turn in self.shell.tend(in: &turn) }
        self.side.log.lines.removeAll { $0 == "sends \(self.type)" }
        return serial
    }

    func receive(
        _ serial: UInt32,
        _ status: Status,
        flags: UInt32 = 0,
        isAwaited: Bool = false,
        in turn: inout Turn
    ) {
        let frame = Frame(type: self.type | flags, serial: serial, status: status, payload: ByteBuffer(string: "item"))
        _ = self.shell.receive(ArrivedFrame(frame), isDamaged: false, isAwaited: isAwaited, in: &turn)
        self.shell.perform(in: &turn)
    }
}
