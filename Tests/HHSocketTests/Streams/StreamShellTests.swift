// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

/// The shell of both ends' streams, on a link whose channel and clock are embedded.
@Suite struct StreamShellTests {
    @Test func randomHistoriesAreThoseOfTheModel() throws {
        for seed in 0..<UInt64(scaled(200)) {
            guard let broken = try ShellHistory(seed: seed, nil).broken() else { continue }
            Issue.record("seed \(seed): \(broken)")
            return
        }
    }

    @Test(arguments: ShellFlaw.allCases)
    func flawsAreFound(_ flaw: ShellFlaw) throws {
        let found = try (0..<UInt64(20)).contains { try ShellHistory(seed: $0, flaw).broken() != nil }
        #expect(found, "\(flaw) is not found")
    }

    @Test func theItemsOfAReadAreDeliveredTogether() throws {
        let world = try ClientWorld()
        let (one, other) = (world.open(1, "one"), world.open(2, "other"))
        world.turn { turn in
            for serial in [one, other, one, one] { world.receive(serial, .partial, in: &turn) }
            #expect(world.log.isEmpty)
            world.shell.tend(in: &turn)
        }
        #expect(world.log == ["one: item, item, item", "other: item"])
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
        #expect(world.log == ["one: item", "one: ended", "ended 1"])
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

/// A mistake of what surrounds the shell, which looks like one of the shell.
enum ShellFlaw: CaseIterable {
    case anActionIsLost, aTurnIsNotTended, itemsComeOneByOne, itemsAreReversed, aFrameIsHeldBack, endIsToldTwice
    case lossIsNotTold
}

private final class Log {
    let flaw: ShellFlaw?
    var lines: [String] = []

    init(_ flaw: ShellFlaw? = nil) { self.flaw = flaw }
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
        if self.log.flaw == .itemsAreReversed { items.reverse() }
        let texts = items.map { String(buffer: $0.payload) }
        self.log.lines.append("\(self.name): \(texts.joined(separator: ", "))")
        self.port.inbox.append(contentsOf: &items)
    }

    func sent(_ items: StreamPort.Settled) { self.log.lines.append("\(self.name): sent \(items.count)") }

    func resume(_ sender: StreamPort.Sender, in turn: inout Turn) {}

    func ended(_ end: StreamEnd, in turn: inout Turn) {
        for _ in 0..<(self.log.flaw == .endIsToldTwice ? 2 : 1) { self.log.lines.append("\(self.name): ended") }
    }
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
        return self.log.flaw != .aFrameIsHeldBack || frame.type != FrameType.item
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
    private var decoder = FrameDecoder(direction: .request)

    init(_ settings: StreamSettings = StreamSettings(), _ flaw: ShellFlaw? = nil) throws {
        let side = Side(Log(flaw))
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
        text: String = "item",
        in turn: inout Turn
    ) {
        let frame = Frame(type: self.type | flags, serial: serial, status: status, payload: ByteBuffer(string: text))
        _ = self.shell.receive(ArrivedFrame(frame), isDamaged: false, isAwaited: isAwaited, in: &turn)
        if self.side.log.flaw == .anActionIsLost { _ = self.shell.with { $0.nextAction() } }
        self.shell.perform(in: &turn)
        if self.side.log.flaw == .itemsComeOneByOne { self.shell.tend(in: &turn) }
    }

    /// Takes the frames that have left, as their serials and payloads.
    func takeFrames() throws -> [String] {
        while let bytes = try self.channel.readOutbound(as: ByteBuffer.self) { self.decoder.append(bytes) }
        var frames: [String] = []
        while case .frame(let frame)? = try self.decoder.next() {
            frames.append("\(frame.serial): \(String(buffer: frame.payload))")
        }
        return frames
    }
}

/// Random turns of a client's shell. The model has what is logged, and the frames that leave.
private final class ShellHistory {
    private let world: ClientWorld
    private var random: SeededGenerator
    private var open: [(serial: UInt32, party: Party, id: StreamID)] = []
    private var lastSerial: UInt32 = 0
    private var log: [String] = []
    /// The items that arrived in this turn, by stream in the order of the first.
    private var arrived: [(serial: UInt32, texts: [String])] = []
    /// The items that leave in this turn.
    private var leaving: [(serial: UInt32, text: String)] = []

    init(seed: UInt64, _ flaw: ShellFlaw?) throws {
        self.world = try ClientWorld(StreamSettings(), flaw)
        self.random = SeededGenerator(seed: seed)
    }

    /// Returns the first deviation from the model.
    func broken() throws -> String? {
        for number in 1...20 {
            if self.open.count < 3 { self.begin() }
            self.world.turn { turn in
                for _ in 0..<Int.random(in: 0...8, using: &self.random) { self.act(in: &turn) }
                if number < 20 { self.tend(in: &turn) } else { self.lose(in: &turn) }
            }
            guard self.world.log == self.log else { return "logged: \(self.world.log), and should be \(self.log)" }
            // Sorted, since streams take turns.
            let sent = self.leaving.map { "\($0.serial): \($0.text)" }.sorted()
            let left = try self.world.takeFrames().sorted()
            guard left == sent else { return "sent: \(left), and should be \(sent)" }
            self.leaving = []
        }
        return self.world.shell.count == 0 ? nil : "a stream is left"
    }

    private func begin() {
        self.lastSerial += 1
        let (party, id) = self.world.enter(self.lastSerial, "\(self.lastSerial)")
        party.port.open(compression: nil)
        self.open.append((self.lastSerial, party, id))
        self.world.turn { turn in self.world.shell.tend(in: &turn) }
        self.log.append("sends \(self.world.type)")
        self.leaving.append((self.lastSerial, ""))
    }

    private func act(in turn: inout Turn) {
        guard let index = self.open.indices.randomElement(using: &self.random) else { return }
        let ((serial, party, id), text) = (self.open[index], "\(self.random.next() % 1_000)")
        switch Int.random(in: 0..<10, using: &self.random) {
        case 0..<5:
            if let place = self.arrived.firstIndex(where: { $0.serial == serial }) {
                self.arrived[place].texts.append(text)
            } else {
                self.arrived.append((serial, [text]))
            }
            self.world.receive(serial, .partial, text: text, in: &turn)
        case 5..<9:
            self.leaving.append((serial, text))
            self.log.append("\(serial): sent 1")
            _ = party.port.put(ByteBuffer(string: text), isCompressed: false) {}
            self.world.shell.settle(party, id, in: &turn)
        default:
            self.end(index)
            self.world.receive(serial, .ok, in: &turn)
        }
    }

    private func deliver(_ index: Int) {
        let (serial, texts) = self.arrived.remove(at: index)
        self.log.append("\(serial): \(texts.joined(separator: ", "))")
    }

    /// Items are delivered before the end, and what waits is not sent.
    private func end(_ index: Int) {
        let serial = self.open.remove(at: index).serial
        if let place = self.arrived.firstIndex(where: { $0.serial == serial }) { self.deliver(place) }
        self.leaving.removeAll { $0.serial == serial && !$0.text.isEmpty }
        self.log += ["\(serial): ended", "ended \(serial)"]
    }

    private func tend(in turn: inout Turn) {
        while !self.arrived.isEmpty { self.deliver(0) }
        self.log += self.leaving.filter { !$0.text.isEmpty }.map { _ in "sends \(FrameType.item)" }
        if self.world.side.log.flaw != .aTurnIsNotTended { self.world.shell.tend(in: &turn) }
    }

    private func lose(in turn: inout Turn) {
        while !self.open.isEmpty { self.end(0) }
        if self.world.side.log.flaw == .lossIsNotTold { return self.world.shell.abandon() }
        self.world.shell.lose(in: &turn)
    }
}
