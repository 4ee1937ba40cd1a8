// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketTesting
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer
@testable import HHSocketServerTransfers

/// A service of transfers over real sockets, and a client that sends arbitrary messages.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferServiceTests {
    private static let megabyte = content(1 << 20)

    @Test(arguments: [HandlerExecutor.global, .connection], [0, 1, 100_000, 3_000_000])
    func aFileIsPutAndGot(_ executor: HandlerExecutor, _ size: Int) async throws {
        try await withTransfers(on: executor) { calls, _, files in
            let bytes = content(size)
            let reports = try await calls.put("a", bytes)
            #expect(reports.first?.offset == 0)
            #expect(reports.last?.complete == true)
            #expect(reports.last?.offset == UInt64(size))
            #expect(files.contents(of: "a") == bytes)
            let got = try await calls.get("a")
            #expect(got.begin?.file == TransferFile(of: bytes).message)
            #expect(got.bytes == bytes)
            #expect(got.error == nil)
            let found = try await calls.find("a")
            #expect(TransferFile(found.file) == TransferFile(of: bytes))
            #expect(found.modified > .zero)
            #expect(files.writableDescriptorCount == 0)
        }
    }

    /// If many bytes have arrived, 512 KiB are written before the client gets a report.
    @Test func theClientHearsHowFarTheServerIs() async throws {
        try await withTransfers { calls, _, _ in
            for pieceLength in [1_000, 65_536, 131_072] {
                let reports = try await calls.put("a\(pieceLength)", Self.megabyte, pieceLength: pieceLength)
                var last: UInt64 = 0
                for report in reports {
                    #expect(report.offset - last <= PutSession.longestInterval + UInt64(pieceLength))
                    last = report.offset
                }
                #expect(last == 1 << 20)
            }
        }
    }

    @Test func theSameContentIsNotSentAgain() async throws {
        try await withTransfers { calls, _, _ in
            try await calls.put("a", Self.megabyte)
            let reports = try await calls.put("a", Self.megabyte, writer: 2)
            #expect(reports.count == 1)
            #expect(reports.first?.complete == true)
        }
    }

    @Test func aPutContinuesAfterALostConnection() async throws {
        try await withTransfers { calls, server, files in
            let put = try await calls.begin("a", Self.megabyte)
            #expect(try await put.nextReport().offset == 0)
            try await put.send(Array(Self.megabyte.prefix(400_000)), at: 0)
            #expect(try await put.nextReport().offset == 400_000)
            for session in server.sessions { session.close(reason: "a tunnel") }
            let end = try await put.failure()
            #expect(end.code == nil)
            try await eventually("the writer is gone") { files.writableDescriptorCount == 0 }
            let reports = try await calls.put("a", Self.megabyte)
            #expect(reports.first?.offset == 400_000)
            #expect(files.contents(of: "a") == Self.megabyte)
        }
    }

    @Test func theSameWriterTakesOver() async throws {
        try await withTransfers { calls, _, files in
            let first = try await calls.begin("a", Self.megabyte)
            _ = try await first.nextReport()
            try await first.send(Array(Self.megabyte.prefix(400_000)), at: 0)
            #expect(try await first.nextReport().offset == 400_000)
            let reports = try await calls.put("a", Self.megabyte)
            #expect(reports.first?.offset == 400_000)
            // The first put is told to retry, which is not a failure.
            let end = try await first.failure()
            #expect(end.code == nil)
            #expect(end.error == .cancelledByServer)
            #expect(files.contents(of: "a") == Self.megabyte)
        }
    }

    @Test func anotherWriterEndsTheFirstAtOnce() async throws {
        try await withTransfers { calls, _, files in
            let first = try await calls.begin("a", Self.megabyte, writer: 1)
            _ = try await first.nextReport()
            let other = content(500_000, seed: 3)
            let second = try await calls.begin("a", other, writer: 2)
            let report = try await second.nextReport()
            #expect(report.offset == 0)
            #expect(report.changed)
            // The server does not wait for the client.
            let end = try await first.failure()
            #expect(end.code == .superseded)
            #expect(end.error == .noPermission)
            let again = try await calls.begin("a", Self.megabyte, writer: 1)
            #expect(try await again.failure().code == .superseded)
            try await second.send(other, at: 0)
            #expect(try await second.reports().last?.complete == true)
            #expect(files.contents(of: "a") == other)
        }
    }

    @Test func contentAtTheWrongOffsetIsSentToTheRightOne() async throws {
        try await withTransfers { calls, _, files in
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            try await put.send(Array(Self.megabyte[100_000..<200_000]), at: 100_000)
            #expect(try await put.nextReport().offset == 0)
            try await put.send(Array(Self.megabyte[200_000..<300_000]), at: 200_000)
            try await put.send(Self.megabyte, at: 0)
            #expect(try await put.reports().last?.complete == true)
            #expect(files.contents(of: "a") == Self.megabyte)
        }
    }

    @Test func aPutThatEndsEarlyIsKept() async throws {
        try await withTransfers { calls, _, files in
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            try await put.send(Array(Self.megabyte.prefix(1_000)), at: 0)
            put.stream.finish()
            let end = try await put.failure()
            #expect(end.code == .invalidRequest)
            #expect(end.error == .illegalFormat)
            #expect(files.contents(of: "a") == nil)
            #expect(try await calls.put("a", Self.megabyte).first?.offset == 1_000)
        }
    }

    @Test func rulesThatAreBroken() async throws {
        try await withTransfers { calls, _, files in
            var put = try await calls.open(with: ByteBuffer(string: "nonsense"))
            #expect(try await put.failure().code == .invalidRequest)
            put = try await calls.open(with: TransferPart(offset: 0, bytes: ByteBuffer(string: "x")).item)
            #expect(try await put.failure().code == .invalidRequest)
            put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            // The server may end the stream before there is room for more.
            try? await put.send(Self.megabyte + [1], at: 0)
            #expect(try await put.failure().code == .invalidRequest)
            put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            try? await put.send([1, 2], at: (1 << 20) - 1)
            #expect(try await put.failure().code == .invalidRequest)
            put = try await calls.begin("a", Self.megabyte, writer: 0)
            #expect(try await put.failure().code == .invalidRequest)
            // A stream that ends without any item.
            let stream = try await calls.client.stream(for: SocketRequest(type: calls.types.put))
            stream.finish()
            #expect(try await TransferCalls.Put(stream: stream).failure().code == .invalidRequest)
            #expect(files.names().filter { !$0.hasPrefix("+") }.isEmpty)
            #expect(files.names(in: "+unfinished").isEmpty)
        }
    }

    @Test(arguments: ["", ".", "..", "a/b", "../a", "/etc/passwd", "a\u{0}", "a\u{0}b", "ä", "a b", "a\n", "+hashes"])
    func hostileIDs(_ id: String) async throws {
        try await withTransfers { calls, _, files in
            #expect(try await calls.begin(id, content(10)).failure().code == .invalidID)
            let got = try await calls.get(id)
            #expect(got.failure == .invalidID)
            #expect(got.error == .illegalFormat)
            #expect(try await calls.find(id).failure.code == .invalidID)
            #expect(try await calls.discard(id, writer: 1).failure.code == .invalidID)
            #expect(files.names().isEmpty)
        }
    }

    @Test func wrongContentIsDiscarded() async throws {
        try await withTransfers { calls, _, files in
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            try await put.send(content(1 << 20, seed: 4), at: 0)
            let end = try await put.failure()
            #expect(end.code == .wrongHash)
            #expect(end.error == .database)
            #expect(files.names(in: "+unfinished").isEmpty)
            #expect(try await calls.put("a", Self.megabyte).first?.offset == 0)
        }
    }

    @Test func aStoreThatFailsSaysHow() async throws {
        try await withTransfers { calls, _, files in
            files.set { $0.isReadOnly = true }
            #expect(try await calls.begin("a", Self.megabyte).failure().code == .readOnly)
            files.set { $0.isReadOnly = false }
            files.set { $0.capacity = 300_000 }
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            try await put.send(Self.megabyte, at: 0)
            let end = try await put.failure()
            #expect(end.code == .noRoom)
            #expect(end.error == .database)
            #expect(files.names(in: "+unfinished").isEmpty)
        }
    }

    // MARK: Get

    @Test func aGetContinuesWhereItStopped() async throws {
        try await withTransfers { calls, _, _ in
            try await calls.put("a", Self.megabyte)
            let file = TransferFile(of: Self.megabyte)
            for offset in [0, 1, 500_000, (1 << 20) - 1, 1 << 20] {
                let got = try await calls.get("a", offset: UInt64(offset), begun: file)
                #expect(got.begin?.offset == UInt64(offset))
                #expect(got.bytes == Array(Self.megabyte[offset...]))
                #expect(got.error == nil)
            }
            // The client has nothing of another file.
            let other = try await calls.get("a", offset: 500_000, begun: TransferFile(of: [1]))
            #expect(other.begin?.offset == 0)
            #expect(other.bytes == Self.megabyte)
            let none = try await calls.get("a", offset: 500_000)
            #expect(none.bytes == Self.megabyte)
            #expect(try await calls.get("a", offset: (1 << 20) + 1, begun: file).failure == .invalidRequest)
        }
    }

    @Test func missingFilesAreNotFound() async throws {
        try await withTransfers { calls, _, _ in
            let got = try await calls.get("a")
            #expect(got.failure == .notFound)
            #expect(got.error == .unknown)
            #expect(try await calls.find("a").failure.code == .notFound)
            #expect(try await !calls.discard("a", writer: 1).discarded)
            // An incomplete file is not visible.
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            #expect(try await calls.get("a").failure == .notFound)
        }
    }

    @Test func aGetUnderWayGivesTheOldFile() async throws {
        try await withTransfers { calls, _, files in
            let (old, new) = (content(6 << 20, seed: 1), content(6 << 20, seed: 2))
            files.add("a", old)
            var request = Hhsocket_GetRequest()
            request.id = "a"
            let stream = try await calls.client.stream(
                for: SocketRequest(type: calls.types.get, body: ByteBuffer(message: request)),
                kind: .serverStreaming
            )
            var items = stream.items.makeAsyncIterator()
            _ = try await items.next()
            try await calls.put("a", new)
            var bytes: [UInt8] = []
            while let item = try await items.next() {
                bytes += Array(buffer: try #require(TransferPart(item: item)).bytes)
            }
            #expect(bytes == old)
            #expect(try await calls.get("a").bytes == new)
            try await eventually("files are closed") { files.descriptorCount == 0 }
        }
    }

    /// The piece that the client takes, and the next one, which was read ahead.
    @Test func whatIsReadForAGetIsCharged() async throws {
        try await withTransfers { calls, server, files in
            files.add("a", content(4 << 20, seed: 1))
            var request = Hhsocket_GetRequest()
            request.id = "a"
            let client = try await StreamClient(server, window: 3_000)
            await client.send(calls.types.get | FrameType.metadataFlag, 50, try Self.withoutMetadata(request))
            // Of the first piece it takes a part, and nothing more.
            try await eventually("both pieces are charged") {
                let piece = TransferService.pieceLength(sent: 0, left: 4 << 20)
                let next = TransferService.pieceLength(sent: UInt64(piece), left: 4 << 20)
                return server.bufferedBytes >= ConnectionCost.request + piece + next
            }
            await client.client.perform(.cancel(50))
            try await server.becomesIdle()
        }
    }

    /// By the account of the client's connection, whose own descriptor is counted as well.
    @Test func filesThatStayOpenAreCountedForTheirClient() async throws {
        try await withTransfers { calls, server, files in
            let ledger = try #require(server.parts?.books.ledger)
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            #expect(ledger.descriptors.load(ordering: .relaxed) == 2)
            put.stream.finish()
            _ = try await put.failure()
            try await eventually("the writer is gone") { ledger.descriptors.load(ordering: .relaxed) == 1 }
            files.add("b", content(4 << 20, seed: 1))
            var request = Hhsocket_GetRequest()
            request.id = "b"
            let client = try await StreamClient(server, window: 3_000)
            await client.send(calls.types.get | FrameType.metadataFlag, 50, try Self.withoutMetadata(request))
            try await eventually("the file is open") { ledger.descriptors.load(ordering: .relaxed) == 3 }
            await client.client.perform(.cancel(50))
            try await eventually("the file is closed") { ledger.descriptors.load(ordering: .relaxed) == 2 }
        }
    }

    private static func withoutMetadata(_ message: Hhsocket_GetRequest) throws -> ByteBuffer {
        var payload = ByteBuffer(integer: 0 as UInt32)
        payload.writeImmutableBuffer(try ByteBuffer(message: message))
        return payload
    }

    // MARK: The application

    @Test func theApplicationDecides() async throws {
        let asked = Watched<[TransferRequest]>([])
        try await withTransfers(authorize: { request, context in
            asked.withLockedValue { $0.append(request) }
            switch request.id {
            case "denied": throw TransferError(.denied, "not yours")
            case "status": throw StatusError(.noPermission, body: ByteBuffer(string: "not yours"))
            case "later": throw StatusError(.overloaded)
            default: break
            }
        }) { calls, _, files in
            for id in ["denied", "status"] {
                let end = try await calls.begin(id, Self.megabyte).failure()
                #expect(end.code == .denied)
                #expect(end.error == .noPermission)
                #expect(try await calls.get(id).failure == .denied)
                #expect(try await calls.find(id).failure.message == "not yours")
                #expect(try await calls.discard(id, writer: 1).failure.code == .denied)
            }
            let end = try await calls.begin("later", Self.megabyte).failure()
            #expect(end.code == nil)
            #expect(end.error == .overloaded)
            #expect(files.names().isEmpty)
        }
        let requests = asked.withLockedValue { $0 }
        #expect(requests.prefix(4).map(\.method) == [.put, .get, .find, .discard])
        let file = TransferFile(of: Self.megabyte)
        #expect(requests.first?.size == file.size && requests.first?.sha256 == file.sha256)
        #expect(requests[1].size == nil && requests[1].sha256 == nil)
    }

    @Test func limitsAreThoseOfAnIdentity() async throws {
        var limits = TransferLimits()
        limits.maximumFilesPerIdentity = 1
        try await withTransfers(limits: limits) { calls, server, _ in
            try await calls.signIn("ada")
            let first = try await calls.begin("a", Self.megabyte)
            _ = try await first.nextReport()
            let end = try await calls.begin("b", Self.megabyte).failure()
            #expect(end.code == .quota)
            #expect(end.error == .database)
            // Clients without an identity are counted by address, across all connections.
            let address = try #require(server.address)
            let others = [TransferCalls(address), TransferCalls(address)]
            let anonymous = try await others[0].begin("c", Self.megabyte)
            _ = try await anonymous.nextReport()
            #expect(try await others[1].begin("d", Self.megabyte).failure().code == .quota)
            for other in others { await other.client.close() }
        }
    }

    @Test func aWriterDiscardsItsFile() async throws {
        try await withTransfers { calls, _, files in
            let put = try await calls.begin("a", Self.megabyte, writer: 7)
            _ = try await put.nextReport()
            try await put.send(Array(Self.megabyte.prefix(200_000)), at: 0)
            _ = try await put.nextReport()
            #expect(try await !calls.discard("a", writer: 8).discarded)
            #expect(try await calls.discard("a", writer: 7).discarded)
            #expect(try await put.failure().error == .cancelledByServer)
            #expect(files.names(in: "+unfinished").isEmpty)
        }
    }

    @Test func otherTypeNumbers() async throws {
        try await withTransfers(types: TransferTypes(first: 7_000)) { calls, server, _ in
            try await calls.put("a", Self.megabyte)
            #expect(try await calls.get("a").bytes == Self.megabyte)
            // Under the default numbers there is no store.
            let others = TransferCalls(try #require(server.address))
            #expect(try await others.get("a").error == .undefinedType)
            await others.client.close()
        }
    }

    @Test func aStoreOfTheApplication() async throws {
        try await withTransfers(store: FailingStore()) { calls, _, _ in
            let got = try await calls.get("a")
            #expect(got.failure == .storeFailed)
            #expect(got.error == .database)
            #expect(try await calls.find("a").failure.message.contains("secret") == false)
            #expect(try await calls.begin("a", [1]).failure().code == .storeFailed)
        }
    }

    @Test func aStoreAtWorkGivesSignsOfLife() async throws {
        let gate = Gate()
        try await withTransfers(store: SlowStore(gate: gate), busyInterval: .milliseconds(10)) { calls, _, _ in
            let put = try await calls.begin("a", [1])
            for _ in 0..<3 {
                let report = try await put.nextReport()
                #expect(report.busy && report.offset == 0 && !report.complete && !report.hasFailure)
            }
            let signs = Watched(0)
            let get = Task {
                try await calls.get("a") { signs.increment() }
            }
            try await signs.wait("signs of a get") { $0 >= 3 }
            gate.open()
            #expect(try await put.reports().last?.complete == true)
            #expect(try await get.value.bytes == [1])
        }
    }

    /// The part of each attempt that a connection must carry for anything to be gained.
    @Test func piecesGrow() {
        var lengths: [Int] = []
        var sent: UInt64 = 0
        while sent < 1_000_000 {
            lengths.append(TransferService.pieceLength(sent: sent, left: 1_000_000 - sent))
            sent += UInt64(lengths[lengths.count - 1])
        }
        #expect(lengths.prefix(6) == [8_192, 8_192, 16_384, 32_768, 65_536, 131_072])
        #expect(lengths[6...].dropLast().allSatisfy { $0 == TransferService.longestPiece })
        #expect(lengths.reduce(0, +) == 1_000_000)
    }

    @Test func shutdownKeepsWhatHasCome() async throws {
        try await withTransfers { calls, server, files in
            let put = try await calls.begin("a", Self.megabyte)
            _ = try await put.nextReport()
            try await put.send(Array(Self.megabyte.prefix(400_000)), at: 0)
            #expect(try await put.nextReport().offset == 400_000)
            await server.shutdown(gracePeriod: .zero)
            #expect(try await put.failure().code == nil)
            try await eventually("the writer is gone") { files.writableDescriptorCount == 0 }
            #expect(files.names(in: "+unfinished").count == 2)
        }
    }

    @Test func contentIsNotCompressed() async throws {
        try await withTransfers { _, server, files in
            files.add("a", [UInt8](repeating: 0, count: 100_000))
            let client = try await StreamClient(server, features: ["compression", "streams"])
            var request = Hhsocket_GetRequest()
            request.id = "a"
            await client.send(TransferTypes().get, 50, try ByteBuffer(message: request))
            var count = 0
            while true {
                let frame = try await client.answer()
                #expect(frame.type & FrameType.compressionFlag == 0)
                if frame.status != .partial {
                    #expect(frame.status == .ok)
                    break
                }
                count += frame.payload.readableBytes
            }
            #expect(count > 100_000)
        }
    }
}

/// A slow store that has every file, each of one byte.
private struct SlowStore: TransferStore {
    struct Reader: TransferReader {
        let stored = StoredFile(file: TransferFile(of: [1]), modified: .seconds(1))

        func read(at offset: UInt64, count: Int) async throws -> ByteBuffer { ByteBuffer(bytes: [1]) }
    }

    let gate: Gate

    func find(_ id: TransferID) async throws -> StoredFile? { nil }
    func open(_ id: TransferID) async throws -> any TransferReader {
        try await self.gate.wait()
        return Reader()
    }
    func begin(_ put: TransferPut, onEnd: @escaping @Sendable (any Error) -> Void) async throws -> TransferBeginning {
        try await self.gate.wait()
        return .complete
    }
    func discard(_ id: TransferID, writer: UInt64) async throws -> Bool { false }
}

/// A store whose errors contain details that a client must not receive.
private struct FailingStore: TransferStore {
    struct Oops: Error { let secret = "secret" }

    func find(_ id: TransferID) async throws -> StoredFile? { throw Oops() }
    func open(_ id: TransferID) async throws -> any TransferReader { throw Oops() }
    func begin(_ put: TransferPut, onEnd: @escaping @Sendable (any Error) -> Void) async throws -> TransferBeginning {
        throw Oops()
    }
    func discard(_ id: TransferID, writer: UInt64) async throws -> Bool { throw Oops() }
}
