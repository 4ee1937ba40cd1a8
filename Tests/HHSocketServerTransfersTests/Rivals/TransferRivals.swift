// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketTransferValues
import NIOCore
import TestSupport

@testable import HHSocketServerTransfers
@testable import HHSocketTransfers

/// Random rival puts of one id with a concurrent get, in virtual time: the machines of clients with the sessions and
/// the store of a server, over connections that are cut, while processes of both sides die.
struct TransferRivals {
    /// A deliberate fault, which must break a promise.
    enum Fault {
        case damagesContent, reportsNoFailure, mixesFiles, losesContent
    }

    /// The frequency of each event in a thousand steps.
    private struct Chances {
        var cut: Int
        var clientDeath: Int
        var serverDeath: Int
        var rival: Int
    }

    static let id: TransferID = "a"
    static let lost = SocketError(.connectionLost, message: "cut", delivery: .sentUnknown)
    /// Long enough for all interference.
    static let timeout = Duration.seconds(3_600)
    /// A small window, but larger than the content between two reports of a server.
    private static let window: UInt64 = PutSession.reportInterval + (64 << 10)

    private let fault: Fault?
    private var random: SeededGenerator
    private let chances: Chances
    private let contents: [[UInt8]]
    /// Whether the clients send content before they know its hash.
    private let isEarly: Bool
    /// Whether the state of a file may be the same after a change.
    private let mistakesSources: Bool
    private let files = MemoryFileSystem()
    private var store: FolderTransferStore
    private var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private var puts: [PutRival] = []
    private var get: GetRival?
    /// Streams that the client has forgotten, but the server has not.
    private var lostStreams: [PutRivalStream] = []
    private var writers: UInt64 = 0
    /// The files that were visible, in their order.
    private var published: [TransferFile] = []
    private var interruptions = 0
    /// The number of bytes that the killed processes have sent.
    private var formerlySent: UInt64 = 0
    private var broken: String?

    init(seed: UInt64, fault: Fault? = nil) throws {
        var random = SeededGenerator(seed: seed)
        func chance(_ values: Int...) -> Int { values.randomElement(using: &random) ?? 0 }
        self.chances = Chances(
            cut: chance(0, 10, 50),
            clientDeath: chance(0, 0, 5),
            serverDeath: chance(0, 0, 5),
            rival: chance(0, 4, 12)
        )
        let sizes = [[300_000, 250_000], [400_000, 400_000], [0, 50_000], [1, 280_000]].randomElement(using: &random)
        self.contents = (sizes ?? []).enumerated().map { content($0.element, seed: seed * 2 + UInt64($0.offset)) }
        self.isEarly = chance(0, 1) == 1
        self.mistakesSources = chance(0, 0, 0, 1) == 1
        self.store = try FolderTransferStore(path: "/store", self.files)
        self.random = random
        self.fault = fault
        self.begin()
    }

    /// - Returns: The promise that was broken; nil for none.
    static func run(seed: UInt64, fault: Fault? = nil) async throws -> String? {
        var history = try Self(seed: seed, fault: fault)
        for _ in 0..<1_000 where history.broken == nil && !history.isOver {
            try await history.interfere()
            await history.step()
        }
        // There is no interference from now on.
        for _ in 0..<20_000 where history.broken == nil && !history.isOver { await history.step() }
        return await history.end()
    }

    private var isOver: Bool { self.puts.allSatisfy(\.isOver) && self.get?.isOver ?? true }

    private mutating func happens(_ chance: Int) -> Bool { Int.random(in: 0..<1_000, using: &self.random) < chance }

    /// A client begins to put one of the contents.
    ///
    /// - Parameter former: The client whose process has died.
    private mutating func begin(after former: PutRival? = nil) {
        self.writers += 1
        let bytes = former?.bytes ?? self.contents.randomElement(using: &self.random) ?? []
        let source = former == nil ? self.source(of: bytes) : former?.source
        self.puts.append(PutRival(bytes, source: source, writer: self.writers, window: Self.window))
    }

    /// The state of a file with this content: of one of two copies.
    private mutating func source(of bytes: [UInt8]) -> TransferDigest? {
        guard self.isEarly, self.happens(800) else { return nil }
        let copy = UInt8.random(in: 0...1, using: &self.random)
        let state = self.mistakesSources ? Array("\(bytes.count)".utf8) : bytes + [copy]
        return state.withUnsafeBytes { TransferDigest(of: $0) }
    }

    // MARK: Faults

    private mutating func interfere() async throws {
        if self.happens(self.chances.cut), let index = self.puts.indices.randomElement(using: &self.random) {
            if self.puts[index].stream != nil { self.interruptions += 1 }
            self.puts[index].lose(self.now)
        }
        if self.happens(self.chances.cut) { self.get?.lose(self.now) }
        if self.happens(self.chances.clientDeath) {
            if self.get?.isOver == false { self.get?.die() }
            if let index = self.puts.indices.randomElement(using: &self.random), !self.puts[index].isOver {
                self.puts[index].die()
                self.lostStreams += self.puts[index].takeAbandoned()
                let put = self.puts.remove(at: index)
                self.formerlySent += put.machine.bytesMoved
                self.interruptions += 1
                self.begin(after: put)
            }
        }
        if self.happens(self.chances.serverDeath) { try self.endServer() }
        if self.puts.count < 8, self.happens(self.chances.rival) { self.begin() }
        if self.get?.isOver ?? true, !self.published.isEmpty, self.happens(50) {
            self.broken = self.broken ?? self.brokenByTheGet
            self.get = GetRival(comparesHashes: self.fault != .mixesFiles)
        }
    }

    /// The server's process dies, perhaps in a power cut, and another one begins.
    private mutating func endServer() throws {
        self.interruptions += self.puts.count
        for index in self.puts.indices {
            self.puts[index].lose(self.now)
            _ = self.puts[index].takeAbandoned()
        }
        self.get?.lose(self.now)
        self.lostStreams = []
        if Bool.random(using: &self.random) {
            self.files.cutPower(&self.random)
        } else {
            self.files.restart()
        }
        self.store = try FolderTransferStore(path: "/store", self.files)
        self.check()
    }

    // MARK: What goes its way

    private enum Move: CaseIterable { case work, receive, serve, lostStream, get }

    private mutating func step() async {
        self.now = self.now + .microseconds(Int64.random(in: 0...2_000, using: &self.random))
        for index in self.puts.indices { self.puts[index].timePassed(self.now) }
        self.get?.timePassed(self.now)
        var hasMoved = false
        for move in Move.allCases.shuffled(using: &self.random) where !hasMoved { hasMoved = await self.make(move) }
        for index in self.puts.indices { self.lostStreams += self.puts[index].takeAbandoned() }
        if !hasMoved {
            let deadlines = self.puts.compactMap(\.machine.nextDeadline) + [self.get?.nextDeadline].compactMap { $0 }
            if let next = deadlines.min() { self.now = max(self.now, next) }
        }
    }

    /// - Returns: False if this move is impossible now.
    private mutating func make(_ move: Move) async -> Bool {
        switch move {
        case .work:
            let able = self.puts.indices.filter { self.puts[$0].hasWork }
            guard let index = able.randomElement(using: &self.random) else { return false }
            self.puts[index].doWork(self.now)
        case .receive:
            let able = self.puts.indices.filter { self.puts[$0].hasMail }
            guard let index = able.randomElement(using: &self.random) else { return false }
            self.puts[index].receive(self.now)
        case .serve:
            let able = self.puts.compactMap(\.stream).filter(\.isDue)
            guard let stream = able.randomElement(using: &self.random) else { return false }
            await self.serve(stream)
        case .lostStream:
            guard let index = self.lostStreams.indices.randomElement(using: &self.random) else { return false }
            // Items that arrived before the loss of the connection may be taken before the loss is noticed.
            if self.lostStreams[index].isDue, self.happens(700) {
                await self.serve(self.lostStreams[index])
            } else {
                await self.lostStreams.remove(at: index).close()
            }
        case .get:
            guard let get = self.get, !get.isOver else { return false }
            if get.hasWork, Bool.random(using: &self.random) {
                self.get?.doWork(self.now)
            } else if let stream = get.stream, stream.isDue, Bool.random(using: &self.random) {
                await stream.serve(self.store, fault: self.fault)
            } else if get.stream?.down.isEmpty == false {
                self.get?.receive(self.now)
            } else {
                return false
            }
        }
        return true
    }

    private mutating func serve(_ stream: PutRivalStream) async {
        if self.fault == .losesContent { self.files.delete("+unfinished") }
        if let file = await stream.serve(self.store, fault: self.fault), self.published.last != file {
            self.published.append(file)
            self.check()
        }
    }

    // MARK: Promises

    private var visible: [UInt8]? { self.files.contents(of: Self.id.description) }

    private mutating func check() {
        guard let visible = self.visible else { return }
        if !self.contents.contains(visible) { self.broken = "a mixture is visible" }
    }

    private mutating func end() async -> String? {
        for stream in self.lostStreams { await stream.close() }
        if let broken = self.broken { return broken }
        guard self.isOver else { return "it does not end" }
        for put in self.puts {
            guard put.outcomes.count == 1, let outcome = put.outcomes.first else { return "a put has ended twice" }
            switch outcome {
            case .success(let file):
                if file != put.file || !self.published.contains(file) { return "a put succeeded without its file" }
            case .failure(let error) where error.code == .superseded:
                if self.writers == 1 { return "the only writer was superseded" }
            case .failure(let error) where error.code == .wrongHash && self.mistakesSources: break
            case .failure(let error):
                return "a put has ended with \(error)"
            }
        }
        let last = self.visible.map { TransferFile(of: $0) }
        let mayBeNone = self.mistakesSources && self.published.isEmpty
        if !mayBeNone, last == nil || last != self.published.last {
            return "what is visible is not the last that was put"
        }
        if let broken = self.brokenByTheGet { return broken }
        return await self.leftovers ?? self.repetitions
    }

    private var brokenByTheGet: String? {
        guard let get = self.get else { return nil }
        guard get.outcomes.count == 1, case .success(let file)? = get.outcomes.first else {
            return "the get has ended with \(get.outcomes)"
        }
        return self.contents.contains(get.bytes) && TransferFile(of: get.bytes) == file ? nil : "the get has a mixture"
    }

    /// The remains at a server after the end of all transfers and of its time limits; nil if there are none.
    private var leftovers: String? {
        get async {
            self.files.advance(by: .seconds(8 * 86_400))
            await self.store.sweep()
            let names = self.files.names(in: "+unfinished")
            return names.isEmpty ? nil : "left: \(names.sorted())"
        }
    }

    /// The excess of repeated content; nil if a single writer repeats at most the content in transit at each loss.
    private var repetitions: String? {
        guard self.chances.serverDeath == 0, Set(self.puts.map(\.file)).count == 1, let file = self.puts.first?.file,
            Set(self.puts.map(\.source)).count == 1, !self.mistakesSources
        else {
            return nil
        }
        let others = UInt64(self.puts.count - 1 + self.interruptions) * Self.window
        let sent = self.puts.reduce(self.formerlySent) { $0 + $1.machine.bytesMoved }
        return sent <= file.size + others ? nil : "\(sent) bytes of \(file.size) were sent"
    }
}
