// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC
@testable import HHSocketTransfers

/// Transfers over sockets, with a faulty store.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferClientTests {
    private let folder: TemporaryFolder
    private let store: ScriptedStore

    init() async throws {
        self.folder = try TemporaryFolder()
        self.store = try await ScriptedStore()
    }

    private static func bytes(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
        var generator = SeededGenerator(seed: seed)
        return generator.bytes(count)
    }

    private func write(_ bytes: [UInt8], to name: String = "source") throws -> String {
        let path = self.folder.file(name)
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        return path
    }

    private func content(_ name: String = "copy") -> [UInt8]? {
        FileManager.default.contents(atPath: self.folder.file(name)).map { Array($0) }
    }

    private var names: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: self.folder.path)) ?? []).sorted()
    }

    private func transfers(
        timeout: Duration = patience,
        pieceSize: Int = 65_536,
        files: any TransferFiles = SystemFiles(),
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> TransferClient {
        var options = TransferClient.Options()
        options.timeout = timeout
        options.pieceSize = pieceSize
        return TransferClient(self.store.client(configure: configure), options: options, files: files)
    }

    private func id(_ text: String) throws -> TransferID { try #require(TransferID(text)) }

    private func error(of transfer: Transfer) async throws -> TransferError {
        try await withDeadline("the end of a transfer") {
            switch await transfer.outcome() {
            case .success(let result): throw Unexpected(description: "\(result)")
            case .failure(let error): return error
            }
        }
    }

    private struct Unexpected: Error, CustomStringConvertible {
        var description: String
    }

    // MARK: Put

    @Test func aFileIsPutUnderTheHashOfItsContent() async throws {
        let bytes = Self.bytes(1_000_000)
        let result = try await self.transfers().put(self.write(bytes)).value
        #expect(self.store.with { $0.whole } == bytes)
        #expect(result.id == TransferID(ScriptedStore.State.describe(bytes).sha256))
        #expect(result.bytesMoved == 1_000_000)
        #expect(self.store.with { $0.begins.map(\.id) } == [result.id.description])
    }

    @Test(arguments: [0, 1, 65_536, 131_073]) func filesOfAllSizesArePutAndFetched(_ size: Int) async throws {
        let bytes = Self.bytes(size)
        let transfers = self.transfers()
        let id = try self.id("f")
        #expect(try await transfers.put(self.write(bytes), id: id).value.file.size == UInt64(size))
        _ = try await transfers.get(id, to: self.folder.file("copy")).value
        #expect(self.content() == bytes)
        #expect(self.names == ["copy", "source"])
        #expect(Array(try await transfers.data(id).readableBytesView) == bytes)
    }

    @Test func contentInTheStoreIsNotSent() async throws {
        let bytes = Self.bytes(500_000)
        let transfers = self.transfers()
        _ = try await transfers.put(ByteBuffer(bytes: bytes), id: self.id("f")).value
        let result = try await transfers.put(self.write(bytes), id: self.id("f")).value
        #expect(result.bytesMoved == 0)
        #expect(self.store.with { $0.received } == 500_000)
    }

    @Test func aPutContinuesAfterEachCutAndSendsNothingTwiceButWhatWasUnderWay() async throws {
        let bytes = Self.bytes(6_000_000)
        self.store.with { $0.cuts = [1_000_000, 1, 700_000, 2_000_000] }
        let transfer = self.transfers().put(try self.write(bytes), id: try self.id("f"))
        let result = try await transfer.value
        #expect(self.store.with { $0.whole } == bytes)
        #expect(self.store.with { Set($0.begins.map(\.writer)).count } == 1)
        #expect(self.store.with { $0.begins.count } == 5)
        #expect(result.bytesMoved <= 6_000_000 + 4 * (4 << 20))
    }

    @Test func aPutWhoseAnswerWasLostFindsTheFileWhole() async throws {
        self.store.with { $0.losesAnswers = 1 }
        let bytes = Self.bytes(300_000)
        let result = try await self.transfers().put(self.write(bytes)).value
        #expect(result.bytesMoved == 300_000)
        #expect(self.store.with { $0.begins.count } == 2)
    }

    @Test func refusalsThatMayPassAreTriedAgain() async throws {
        self.store.with { $0.statuses = [.overloaded, .cancelledByServer] }
        _ = try await self.transfers().put(self.write(Self.bytes(10))).value
        #expect(self.store.with { $0.begins.count } == 1)
    }

    @Test(arguments: [TransferError.Code.superseded, .denied, .noRoom, .readOnly, .quota])
    func refusalOfTheStoreIsReportedAtOnce(_ code: TransferError.Code) async throws {
        self.store.with { $0.failures = [TransferError(code, "no \(code)")] }
        let error = try await self.error(of: self.transfers().put(self.write(Self.bytes(10))))
        #expect(error.code == code && error.message == "no \(code)")
        #expect(self.store.with { $0.begins.count } == 1)
    }

    @Test func aServerWithoutAStoreIsReportedAtOnce() async throws {
        var options = TransferClient.Options()
        options.timeout = patience
        let transfers = TransferClient(self.store.client(), types: TransferTypes(first: 5_000), options: options)
        let put = try await self.error(of: transfers.put(self.write(Self.bytes(10))))
        #expect(put.code == .noStore)
        let get = try await self.error(of: transfers.get(self.id("f"), to: self.folder.file("copy")))
        #expect(get.code == .noStore)
    }

    @Test func aServerWithoutStreamsIsReportedAtOnce() async throws {
        self.store.server.acceptHello(features: [.metadata])
        let error = try await self.error(of: self.transfers().put(self.write(Self.bytes(10))))
        #expect(error.code == .connectionFailed && error.underlying?.code == .featureNotAgreed)
    }

    @Test func aWrongHashIsTriedAgainOnce() async throws {
        let bytes = Self.bytes(200_000)
        self.store.with { $0.damages = 1 }
        let transfer = self.transfers().put(try self.write(bytes))
        _ = try await transfer.value
        #expect(self.store.with { $0.whole } == bytes)
        #expect(transfer.progress.restarts == 1)
        self.store.with { ($0.damages, $0.whole) = (2, nil) }
        let error = try await self.error(of: self.transfers().put(self.write(bytes)))
        #expect(error.code == .wrongHash)
    }

    @Test func aSourceThatChangesIsNoMixture() async throws {
        let path = try self.write(Self.bytes(3_000_000))
        let files = FaultyFiles()
        // The file changes after it was hashed, while it is sent.
        files.before(.read, after: 46 + 10) {
            let handle = FileHandle(forWritingAtPath: path)
            try? handle?.write(contentsOf: Data(repeating: 7, count: 2_000_000))
            // The clock of files is too coarse for a fast test.
            var times = [timeval(tv_sec: 1_000, tv_usec: 1), timeval(tv_sec: 1_000, tv_usec: 1)]
            utimes(path, &times)
        }
        let error = try await self.error(of: self.transfers(files: files).put(path))
        #expect(error.code == .sourceChanged)
        #expect(self.store.with { $0.whole } == nil)
        #expect(files.openCount == 0)
    }

    @Test func otherThanPlainFilesAreReportedBeforeSending() async throws {
        let error = try await self.error(of: self.transfers().put(self.folder.path))
        #expect(error.code == .fileFailed)
        #expect(self.store.with { $0.begins.isEmpty })
    }

    @Test func unfinishedOtherContentIsReported() async throws {
        let transfers = self.transfers()
        self.store.with { $0.cuts = [200_000] }
        self.store.with { $0.failures = [] }
        let first = transfers.put(ByteBuffer(bytes: Self.bytes(900_000)), id: try self.id("f"))
        try await eventually("the first is cut") { self.store.with { $0.cuts.isEmpty } }
        first.cancel()
        _ = try await self.error(of: first)
        self.store.with { if $0.unfinished.isEmpty { $0.unfinished = [1] } }
        let second = transfers.put(ByteBuffer(bytes: Self.bytes(900_000, seed: 2)), id: try self.id("f"))
        _ = try await second.value
        #expect(second.progress.changes == 1)
    }

    // MARK: Get

    @Test func aGetContinuesAfterEachCut() async throws {
        let bytes = Self.bytes(6_000_000)
        self.store.with { ($0.whole, $0.cuts) = (bytes, [1_000_000, 1, 700_000, 2_000_000]) }
        let result = try await self.transfers().get(self.id("f"), to: self.folder.file("copy")).value
        #expect(self.content() == bytes)
        #expect(self.names == ["copy"])
        #expect(result.bytesMoved == 6_000_000)
        #expect(self.store.with { $0.requests.map(\.offset) } == [0, 1_000_000, 1_000_001, 1_700_001, 3_700_001])
    }

    @Test func aGetContinuesInAnotherClient() async throws {
        let bytes = Self.bytes(1_000_000)
        self.store.with { ($0.whole, $0.cuts, $0.maximumAnswers) = (bytes, [400_000], 1) }
        let path = self.folder.file("copy")
        let first = self.transfers().get(try self.id("f"), to: path)
        try await eventually("the first part") { first.progress.completed == 400_000 }
        first.cancel()
        #expect(try await self.error(of: first).code == .cancelled)
        #expect(self.names.count == 1)
        self.store.with { $0.maximumAnswers = .max }
        let result = try await self.transfers().get(self.id("f"), to: path).value
        #expect(result.bytesMoved == 600_000)
        #expect(self.content() == bytes)
    }

    @Test func aFileThatIsReplacedMeanwhileStartsOver() async throws {
        let (old, new) = (Self.bytes(1_000_000), Self.bytes(900_000, seed: 2))
        self.store.with { ($0.whole, $0.cuts, $0.replacement) = (old, [400_000], new) }
        let transfer = self.transfers().get(try self.id("f"), to: self.folder.file("copy"))
        _ = try await transfer.value
        #expect(self.content() == new)
        #expect(transfer.progress.changes == 1 && transfer.progress.restarts == 1)
        #expect(self.names == ["copy"])
    }

    @Test func anOutputGetsNothingOfAFileThatReplacesAnother() async throws {
        let (old, new) = (Self.bytes(1_000_000), Self.bytes(900_000, seed: 2))
        self.store.with { ($0.whole, $0.cuts, $0.replacement) = (old, [400_000], new) }
        let path = try self.folder.write("", to: "output")
        let output = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        let error = try await self.error(
            of: self.transfers().get(self.id("f"), toDescriptor: output.fileDescriptor)
        )
        #expect(error.code == .sourceChanged)
        try output.close()
        let written = try Data(contentsOf: URL(fileURLWithPath: path))
        #expect(written.count == 400_000 && old.starts(with: written))
    }

    @Test func contentDamagedInTransitIsFetchedAgain() async throws {
        let bytes = Self.bytes(300_000)
        self.store.with { ($0.whole, $0.damages) = (bytes, 1) }
        let result = try await self.transfers().get(self.id("f"), to: self.folder.file("copy")).value
        #expect(self.content() == bytes)
        #expect(result.bytesMoved == 600_000)
        self.store.with { $0.damages = 100 }
        let error = try await self.error(of: self.transfers().get(self.id("f"), to: self.folder.file("other")))
        #expect(error.code == .wrongHash)
        #expect(self.names == ["copy"])
    }

    @Test func aMissingFileKeepsNothing() async throws {
        let error = try await self.error(of: self.transfers().get(self.id("f"), to: self.folder.file("copy")))
        #expect(error.code == .notFound)
        #expect(self.names == [])
    }

    @Test func aFullDiskEndsAGetAndIsMadeRoomOn() async throws {
        self.store.with { $0.whole = Self.bytes(1_000_000) }
        let files = FaultyFiles()
        files.fail(.write, after: 5, with: ENOSPC)
        _ = try self.folder.write("old", to: "copy")
        let error = try await self.error(
            of: self.transfers(files: files).get(self.id("f"), to: self.folder.file("copy"))
        )
        #expect(error.code == .noRoom)
        #expect(self.names == ["copy"] && self.content() == Array("old".utf8))
        #expect(files.openCount == 0)
    }

    @Test func hostileServersEndAGetWithAnError() async throws {
        let file = ScriptedStore.State.describe(Self.bytes(100))
        typealias Reaction = MockServer.Reaction
        func content(_ offset: UInt64, _ count: Int) -> Reaction {
            .item(TransferPart(offset: offset, bytes: ByteBuffer(repeating: 1, count: count)).item)
        }
        let begin = ScriptedStore.State.begin(file, 0)
        let huge = ScriptedStore.State.begin(TransferFile(size: .max, sha256: file.sha256), 0)
        let answers: [(Reaction, TransferError.Code)] = [
            (content(0, 10), .invalidRequest),
            (begin.then(content(1, 10)), .invalidRequest),
            (begin.then(content(.max, 10)), .invalidRequest),
            (begin.then(content(0, 101)), .invalidRequest),
            (begin.then(begin), .invalidRequest),
            (.item("nonsense"), .invalidRequest),
            (.item(""), .invalidRequest),
            (ScriptedStore.State.begin(file, .max), .invalidRequest),
            (huge, .noRoom),
        ]
        let transfers = self.transfers()
        for (answer, code) in answers {
            self.store.with { $0.answers = [answer] }
            let error = try await self.error(of: transfers.get(self.id("f"), to: self.folder.file("copy")))
            #expect(error.code == code, "\(error)")
            #expect(self.names == [])
        }
    }

    @Test func twoGetsToOnePathDoNotDisturbEachOther() async throws {
        let bytes = Self.bytes(1_000_000)
        self.store.with { ($0.whole, $0.cuts, $0.maximumAnswers) = (bytes, [400_000], 1) }
        let transfers = self.transfers()
        let first = transfers.get(try self.id("f"), to: self.folder.file("copy"))
        try await eventually("the first has begun") { first.progress.completed == 400_000 }
        let second = transfers.get(try self.id("f"), to: self.folder.file("copy"))
        #expect(try await self.error(of: second).code == .fileFailed)
        self.store.with { $0.maximumAnswers = .max }
        #expect(try await first.value.bytesMoved == 1_000_000)
        #expect(self.content() == bytes)
        #expect(self.names == ["copy"])
    }

    // MARK: Find

    @Test func aFileIsFound() async throws {
        let transfers = self.transfers()
        await #expect(throws: TransferError.self) { try await transfers.find(self.id("f")) }
        self.store.with { $0.whole = [1, 2, 3] }
        let found = try await transfers.find(self.id("f"))
        #expect(found.file.size == 3 && found.modified == .seconds(1_700_000_000))
    }

    // MARK: Links

    @Test func aLinkOnWhichNothingMovesIsLeftAndOtherCallsAreNot() async throws {
        // The next one answers at once: the clock stands, so that nothing would be sent to it again.
        self.store.with { $0.silentConnection = 0 }
        let time = ManualTime()
        let client = self.store.client { $0.socket.time = SocketTime(time) }
        var options = TransferClient.Options()
        options.timeout = .seconds(60)
        let transfers = TransferClient(client, options: options)
        let transfer = transfers.put(try self.write(Self.bytes(10)))
        _ = try await client.data(for: SocketRequest(type: 101, body: "before"))
        self.store.server.on(102, .echo.held(until: 2))
        async let slow = client.data(for: SocketRequest(type: 102, body: "slow"))
        _ = try await self.store.server.received(1, ofType: 102)
        _ = try await self.store.server.received(1, ofType: TransferTypes().put)
        // A third of the timeout.
        await time.advance(by: .seconds(21))
        try await time.advance(by: .milliseconds(1), until: "another connection") {
            self.store.server.connections.contains { $0.number > 0 }
        }
        async let other = client.data(for: SocketRequest(type: 102, body: "other"))
        #expect(try await slow.string == "slow")
        #expect(try await other.string == "other")
        _ = try await transfer.value
    }

    /// The waits between the connections of a put that end after the given numbers of bytes.
    private func waits(_ size: Int, cuts: [Int]) async throws -> [Duration] {
        self.store.with { $0.cuts = cuts }
        let client = self.store.client {
            $0.socket.backoff = Backoff(base: .milliseconds(200), cap: .seconds(100), jitter: 0)
        }
        let events = client.events
        let transfers = TransferClient(client)
        _ = try await transfers.put(ByteBuffer(bytes: Self.bytes(size)), id: self.id("f")).value
        await client.close()
        var waits: [Duration] = []
        for await event in events {
            if case .waiting(let delay, _) = event { waits.append(delay) }
            if case .closed = event { break }
        }
        return waits
    }

    @Test func aConnectionOnWhichATransferHasMovedHasTheBackoffStartOver() async throws {
        // The first wait is 200 ms, the sixth would be 6.4 s. If content moved at the moment of the loss, the reported
        // wait is shortened.
        let waits = try await self.waits(3_000_000, cuts: Array(repeating: 200_000, count: 6))
        #expect(waits.count == 6)
        #expect(waits.allSatisfy { $0 <= .milliseconds(400) })
    }

    @Test func oneOnWhichItHasMovedLittleDoesNot() async throws {
        // The whole file is less than the amount that counts as progress.
        let waits = try await self.waits(60_000, cuts: Array(repeating: 1_000, count: 3))
        #expect(waits.contains { $0 >= .milliseconds(800) })
    }

    @Test func aTransferThatNeverMovesStalls() async throws {
        self.store.with { $0.isSilent = true }
        let time = ManualTime()
        let transfers = self.transfers(timeout: .seconds(60)) { $0.socket.time = SocketTime(time) }
        let put = transfers.put(try self.write(Self.bytes(10)))
        let get = transfers.get(try self.id("f"), to: self.folder.file("copy"))
        for type in [TransferTypes().put, TransferTypes().get] {
            _ = try await self.store.server.received(1, ofType: type)
        }
        let errors = Watched<[TransferError]>([])
        for transfer in [put, get] {
            Task {
                let error = try await self.error(of: transfer)
                errors.withLockedValue { $0.append(error) }
            }
        }
        try await time.advance(by: .seconds(1), until: "both ends") { errors.current.count == 2 }
        #expect(errors.current.allSatisfy { $0.code == .stalled })
    }

    @Test func theFirstConnectionIsWaitedForNoLongerThanTheTimeout() async throws {
        try await self.store.server.refuseConnections()
        let transfers = self.transfers(timeout: .seconds(1))
        let error = try await self.error(of: transfers.put(self.write(Self.bytes(10))))
        #expect(error.code == .stalled)
    }

    @Test func aServerThatComesLaterIsInTime() async throws {
        try await self.store.server.refuseConnections()
        let transfer = self.transfers().put(try self.write(Self.bytes(10)))
        try await self.store.server.acceptConnections()
        _ = try await transfer.value
    }

    @Test func smallCallsPassATransfer() async throws {
        let client = self.store.client()
        let transfers = TransferClient(client)
        let bytes = Self.bytes(20_000_000)
        let transfer = transfers.put(ByteBuffer(bytes: bytes), id: try self.id("f"))
        try await eventually("the transfer moves") { transfer.progress.completed > 0 }
        for number in 0..<20 {
            #expect(try await client.data(for: SocketRequest(type: 101, body: "\(number)")).string == "\(number)")
        }
        _ = try await transfer.value
        #expect(self.store.with { $0.whole } == bytes)
    }

    @Test func contentIsNotCompressed() async throws {
        self.store.server.acceptHello(
            features: [.compression],
            streams: StreamPolicy(streamWindow: 4 << 20, connectionWindow: 8 << 20)
        )
        let transfers = self.transfers { $0.compression = CompressionPolicy(minimumLength: 0) }
        _ = try await transfers.put(ByteBuffer(repeating: 1, count: 100_000)).value
        #expect(self.store.server.received.allSatisfy { !$0.isCompressed })
    }

    // MARK: The handle

    @Test func progressKeepsTheLatestAndEnds() async throws {
        let transfers = self.transfers()
        let transfer = transfers.put(ByteBuffer(bytes: Self.bytes(2_000_000)))
        var last = TransferProgress()
        for await progress in transfer.progressUpdates {
            #expect(progress.completed >= last.completed)
            last = progress
        }
        _ = try await transfer.value
        #expect(transfer.progress.completed == 2_000_000 && transfer.progress.total == 2_000_000)
        var after: [TransferProgress] = []
        for await progress in transfer.progressUpdates { after.append(progress) }
        #expect(after == [transfer.progress])
    }

    @Test func theCompletionHandlerIsCalledOnceAndTheHandleMayBeReleased() async throws {
        let calls = Watched<[Result<TransferResult, TransferError>]>([])
        let client = self.store.client()
        TransferClient(client).put(ByteBuffer(bytes: Self.bytes(2_000_000))) { result in
            calls.withLockedValue { $0.append(result) }
        }
        try await eventually("the completion") { calls.withLockedValue { !$0.isEmpty } }
        #expect(calls.withLockedValue { $0.count == 1 && (try? $0[0].get()) != nil })
        withExtendedLifetime(client) {}
    }

    @Test func theCompletionHandlerRunsOnTheCallbackQueueEvenIfThatIsTheSocketThread() async throws {
        let client = self.store.client { $0.socket.callbackQueue = .socketThread }
        let wasHere = Watched<[Bool]>([])
        // One is transferred, the other cannot be read.
        TransferClient(client).put(ByteBuffer(bytes: Self.bytes(10_000))) { [weak client] _ in
            wasHere.withLockedValue { $0.append(client?.host.loop.isCurrent ?? false) }
        }
        TransferClient(client).put("/nowhere/at all") { [weak client] _ in
            wasHere.withLockedValue { $0.append(client?.host.loop.isCurrent ?? false) }
        }
        try await wasHere.wait("both completions") { $0.count == 2 }
        #expect(wasHere.current == [true, true])
        withExtendedLifetime(client) {}
    }

    @Test func cancellingTheTaskThatWaitsCancelsTheTransfer() async throws {
        self.store.with { $0.isSilent = true }
        let transfer = self.transfers().put(ByteBuffer(bytes: [1]))
        let task = Task { try await transfer.value }
        task.cancel()
        await #expect(throws: TransferError.self) { try await task.value }
        #expect(try await self.error(of: transfer).code == .cancelled)
    }

    @Test func aClientThatIsReleasedEndsItsTransfers() async throws {
        self.store.with { $0.isSilent = true }
        let ends = Watched<[TransferError.Code]>([])
        do {
            let transfers = self.transfers()
            for _ in 0..<3 {
                transfers.put(ByteBuffer(bytes: [1])) { result in
                    if case .failure(let error) = result { ends.withLockedValue { $0.append(error.code) } }
                }
            }
            _ = try await self.store.server.received(3, ofType: 0x1FFF_0000)
            withExtendedLifetime(transfers) {}
        }
        try await eventually("their ends") { ends.withLockedValue { $0.count } == 3 }
        #expect(ends.withLockedValue { $0 } == [.cancelled, .cancelled, .cancelled])
    }

    @Test func cancellingWithDiscardingRemovesWhatWasTransferred() async throws {
        let bytes = Self.bytes(1_000_000)
        self.store.with { ($0.whole, $0.cuts, $0.maximumAnswers) = (bytes, [400_000], 1) }
        let get = self.transfers().get(try self.id("f"), to: self.folder.file("copy"))
        try await eventually("the first part") { get.progress.completed == 400_000 }
        get.cancel(discarding: true)
        _ = await get.outcome()
        #expect(self.names == [])
        self.store.with { $0.isSilent = true }
        let put = self.transfers().put(ByteBuffer(bytes: bytes), id: try self.id("g"))
        _ = try await self.store.server.received(1, ofType: 0x1FFF_0000)
        put.cancel(discarding: true)
        let call = try await self.store.server.received(1, ofType: 0x1FFF_0003)[0]
        let request = try Hhsocket_DiscardRequest(serializedBytes: call.body.readableBytesView)
        #expect(request.id == "g" && request.writer != 0)
        withExtendedLifetime(put) {}
    }
}

extension Transfer {
    /// Waits for the result.
    fileprivate func outcome() async -> Result<TransferResult, TransferError> {
        do throws(TransferError) {
            return .success(try await self.value)
        } catch {
            return .failure(error)
        }
    }
}
