// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketServerTransfers
import HHSocketTransfers
import NIOCore
import TestSupport
import Testing

/// Files between a client and a server, over a link that holds.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferTests {
    @Test(arguments: [0, 1, 4_095, 262_144, 262_145, 3_000_001])
    func filesComeAndGo(size: Int) async throws {
        try await TransferHouse.with { house in
            let (path, file) = try house.file("source", size)
            let put = try await house.transfers.put(path).value
            #expect(put.id.description == file.sha256.description)
            #expect(put.file == file)
            #expect(put.bytesMoved == UInt64(size))
            #expect(try TransferHouse.describe("\(house.store)/\(put.id)") == file)
            #expect(try house.visible() == [put.id.description])

            let copy = house.folder.file("copy")
            let get = try await house.transfers.get(put.id, to: copy).value
            #expect(get.file == file)
            #expect(get.bytesMoved == UInt64(size))
            #expect(try TransferHouse.describe(copy) == file)
            #expect(try house.hidden() == [])

            let found = try await house.transfers.find(put.id)
            #expect(found.file == file)
            #expect(abs(found.modified.components.seconds - Int64(Date().timeIntervalSince1970)) < 3_600)
        }
    }

    /// The larger buffers of TLS are charged once, while the connection lasts.
    @Test func filesComeAndGoOverTLS() async throws {
        try await TransferHouse.with(hasTLS: true) { house in
            let (small, _) = try house.file("small", 100_000)
            _ = try await house.transfers.put(small).value
            try await eventually("nothing is held but a connection") { house.server.heldBytes < 128 << 10 }
            for size in [1 << 20, 20_000_000] {
                let (path, file) = try house.file("source", size, seed: UInt64(size))
                let put = try await house.transfers.put(path).value
                #expect(try TransferHouse.describe("\(house.store)/\(put.id)") == file)
                let copy = house.folder.file("copy")
                #expect(try await house.transfers.get(put.id, to: copy).value.file == file)
                #expect(try TransferHouse.describe(copy) == file)
                try await eventually("the buffers are held") {
                    (320 << 10..<448 << 10).contains(house.server.heldBytes)
                }
            }
            await house.client.close()
            try await eventually("all is given back") { house.server.heldBytes == 0 }
        }
    }

    @Test func bytesComeAndGo() async throws {
        try await TransferHouse.with { house in
            let content = ByteBuffer(string: String(repeating: "HHSocket ", count: 100_000))
            _ = try await house.transfers.put(content, id: id("text")).value
            #expect(try await house.transfers.data(id("text")) == content)
            await #expect { try await house.transfers.data(id("text"), maximumSize: 899_999) } throws: { error in
                (error as? TransferError)?.code == .noRoom
            }
        }
    }

    @Test func existingContentIsNotSentAgain() async throws {
        try await TransferHouse.with { house in
            let (path, file) = try house.file("source", 1_000_000)
            _ = try await house.transfers.put(path, id: id("a")).value
            let before = house.link.bytesUp
            let again = try await house.transfers.put(path, id: id("a")).value
            #expect(again.file == file && again.bytesMoved == 0)
            #expect(house.link.bytesUp - before < 10_000)
        }
    }

    @Test func anotherContentReplacesTheOldOne() async throws {
        try await TransferHouse.with { house in
            let (old, _) = try house.file("old", 400_000, seed: 1)
            let (new, file) = try house.file("new", 300_000, seed: 2)
            _ = try await house.transfers.put(old, id: id("a")).value
            let put = house.transfers.put(new, id: id("a"))
            _ = try await put.value
            // No unfinished content was discarded.
            #expect(put.progress.changes == 0)
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
        }
    }

    @Test func progressEndsAtTheWhole() async throws {
        try await TransferHouse.with { house in
            let (path, _) = try house.file("source", 2_000_000)
            let put = house.transfers.put(path, id: id("a"))
            var last = TransferProgress()
            for await progress in put.progressUpdates {
                #expect(progress.completed >= last.completed)
                last = progress
            }
            _ = try await put.value
            #expect(put.progress.completed == 2_000_000 && put.progress.total == 2_000_000)
            #expect(put.progress.restarts == 0)
        }
    }

    @Test func handlersAreCalledOnce() async throws {
        try await TransferHouse.with { house in
            let results = Watched<[Result<TransferResult, TransferError>]>([])
            house.transfers.get(id("nothing"), to: house.folder.file("x")) { result in
                results.withLockedValue { $0.append(result) }
            }
            house.transfers.put(ByteBuffer(string: "x"), id: id("x")) { result in
                results.withLockedValue { $0.append(result) }
            }
            try await results.wait("both results") { $0.count == 2 }
            #expect(results.current.count { if case .success = $0 { true } else { false } } == 1)
        }
    }

    // MARK: Errors, told at once

    @Test func missingFilesAreNotFound() async throws {
        try await TransferHouse.with { house in
            let path = house.folder.file("old")
            try Data("old".utf8).write(to: URL(fileURLWithPath: path))
            let error = try await failure(of: house.transfers.get(id("nothing"), to: path))
            #expect(error.code == .notFound, "\(error)")
            // The old file stays.
            #expect(try String(contentsOfFile: path, encoding: .utf8) == "old")
            #expect(try house.hidden() == [])
            await #expect { try await house.transfers.find(id("nothing")) } throws: { error in
                (error as? TransferError)?.code == .notFound
            }
        }
    }

    @Test func applicationDecidesOnPermissions() async throws {
        let asked = Watched<[TransferRequest]>([])
        let mayGet: TransferService.Authorization = { request, context in
            asked.withLockedValue { $0.append(request) }
            guard request.method == .get else { throw TransferError(.denied, "only \(context.metadata["who"] ?? "")") }
        }
        try await TransferHouse.with(authorize: mayGet) { house in
            var options = TransferClient.Options()
            options.call.metadata["who"] = "readers"
            let transfers = TransferClient(house.client, options: options)
            let error = try await failure(of: transfers.put(ByteBuffer(string: "x"), id: id("x")))
            #expect(error.code == .denied && error.message.contains("only readers"), "\(error)")
            #expect(asked.current.first?.size == 1)
            try Data("there".utf8).write(to: URL(fileURLWithPath: "\(house.store)/x"))
            #expect(try await transfers.data(id("x")) == ByteBuffer(string: "there"))
            #expect(try house.visible() == ["x"])
        }
    }

    @Test func serverWithoutAStoreIsAnErrorAtOnce() async throws {
        let server = SocketServer(configuration: .init(), router: .echo)
        try await server.start()
        let client = TransferHouse.client(of: try #require(server.address))
        let error = try await failure(of: TransferClient(client).put(ByteBuffer(string: "x")))
        #expect(error.code == .noStore, "\(error)")
        await client.close()
        await server.shutdown(gracePeriod: .zero)
    }

    /// Sent as bytes, since no `TransferID` can be made from them.
    @Test(arguments: [
        "", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "\0", "+unfinished", "ä", "a b", "a\n",
        String(repeating: "x", count: 129), "..\\x", "%2e%2e", "~",
    ])
    func hostileIdsAreRefused(text: String) async throws {
        try await TransferHouse.with { house in
            var begin = Hhsocket_PutRequest()
            begin.begin.id = text
            begin.begin.file.size = 1
            begin.begin.file.sha256 = .init(repeating: 7, count: 32)
            begin.begin.writer = 1
            let types = TransferTypes()
            let put = try await house.client.stream(for: SocketRequest(type: types.put), kind: .bidirectional)
            try await put.send(ByteBuffer(bytes: try begin.serializedBytes()))
            var reports: [Hhsocket_PutReport] = []
            let putEnd = await Result {
                for try await item in put.items {
                    reports.append(try Hhsocket_PutReport(serializedBytes: item.readableBytesView))
                }
            }
            #expect(reports.map(\.failure.code) == [.invalidID])
            #expect(throws: SocketError.self) { try putEnd.get() }

            var request = Hhsocket_GetRequest()
            request.id = text
            let get = try await house.client.stream(
                for: SocketRequest(type: types.get, body: ByteBuffer(bytes: try request.serializedBytes())),
                kind: .serverStreaming
            )
            var items: [Hhsocket_GetItem] = []
            let getEnd = await Result {
                for try await item in get.items {
                    items.append(try Hhsocket_GetItem(serializedBytes: item.readableBytesView))
                }
            }
            #expect(items.map(\.failure.code) == [.invalidID])
            #expect(throws: SocketError.self) { try getEnd.get() }

            var find = Hhsocket_FindRequest()
            find.id = text
            let answer = try await house.client.data(
                for: SocketRequest(type: types.find, body: ByteBuffer(bytes: try find.serializedBytes()))
            )
            let reply = try Hhsocket_FindReply(serializedBytes: answer.body.readableBytesView)
            #expect(reply.failure.code == .invalidID)
            #expect(try house.visible() == [])
            #expect(try FileManager.default.contentsOfDirectory(atPath: house.folder.path) == ["store"])
        }
    }

    @Test func aStoreThatFailsIsReportedWithoutItsReasons() async throws {
        struct Broken: TransferStore {
            struct Secret: Error {}
            var error: any Error = Secret()
            func find(_ id: TransferID) async throws -> StoredFile? { throw self.error }
            func open(_ id: TransferID) async throws -> any TransferReader { throw self.error }
            func begin(_ put: TransferPut, onEnd: @escaping @Sendable (any Error) -> Void) async throws
                -> TransferBeginning
            { throw self.error }
            func discard(_ id: TransferID, writer: UInt64) async throws -> Bool { throw self.error }
        }
        for (thrown, code) in [
            (Broken.Secret(), .storeFailed), (TransferError(.readOnly, "the disk is read-only"), .readOnly),
            (TransferError(.noRoom, "the disk is full"), .noRoom),
        ] as [(any Error, TransferError.Code)] {
            try await TransferHouse.with(wrap: { _ in Broken(error: thrown) }) { house in
                let put = try await failure(of: house.transfers.put(ByteBuffer(string: "x"), id: id("x")))
                #expect(put.code == code && !put.message.contains("Secret"), "\(put)")
                let get = try await failure(of: house.transfers.get(id("x"), to: house.folder.file("x")))
                #expect(get.code == code, "\(get)")
            }
        }
    }

    // MARK: Local files

    @Test func onlyPlainFilesAreSent() async throws {
        try await TransferHouse.with { house in
            let pipe = house.folder.file("pipe")
            try #require(mkfifo(pipe, 0o600) == 0)
            for path in [pipe, house.folder.path, "/dev/null", house.folder.file("missing")] {
                let error = try await failure(of: house.transfers.put(path, id: id("x")))
                #expect(error.code == .fileFailed, "\(path): \(error)")
                #expect(error.message.contains(path))
            }
            #expect(try house.visible() == [])
        }
    }

    @Test func pathsWhereNoFileCanBeAreErrors() async throws {
        try await TransferHouse.with { house in
            _ = try await house.transfers.put(ByteBuffer(string: "x"), id: id("x")).value
            for path in [house.folder.path, house.folder.file("missing/x"), "\(house.folder.path)/"] {
                let error = try await failure(of: house.transfers.get(id("x"), to: path))
                #expect(error.code == .fileFailed, "\(path): \(error)")
            }
            #expect(!FileManager.default.fileExists(atPath: house.folder.file("missing")))
        }
    }

    @Test func linksInTheStoreAreNotFollowed() async throws {
        try await TransferHouse.with { house in
            let secret = try house.folder.write("secret", to: "secret")
            try FileManager.default.createSymbolicLink(atPath: "\(house.store)/link", withDestinationPath: secret)
            try FileManager.default.createDirectory(atPath: "\(house.store)/folder", withIntermediateDirectories: false)
            try #require(mkfifo("\(house.store)/pipe", 0o600) == 0)
            for name in ["link", "folder", "pipe"] {
                let error = try await failure(of: house.transfers.get(id(name), to: house.folder.file("got")))
                #expect(error.code == .notFound, "\(name): \(error)")
            }
            _ = try await house.transfers.put(ByteBuffer(string: "new"), id: id("link")).value
            #expect(try String(contentsOfFile: secret, encoding: .utf8) == "secret")
            #expect(try await house.transfers.data(id("link")) == ByteBuffer(string: "new"))
        }
    }

    // MARK: Several

    /// The bytes that the slower of two transfers has when the other one ends.
    private func slower(_ one: Transfer, _ other: Transfer) async throws -> UInt64 {
        try await eventually("one of two has ended") { one.result != nil || other.result != nil }
        return min(one.progress.completed, other.progress.completed)
    }

    @Test func severalTransfersShareTheLinkAndDoNotAffectCalls() async throws {
        try await TransferHouse.with { house in
            let size = 16 << 20
            let sources = try (0..<4).map { try house.file("source\($0)", size, seed: UInt64($0)) }
            for number in 2..<4 {
                _ = try await house.transfers.put(sources[number].path, id: id("there\(number)")).value
            }
            var transfers: [Transfer] = []
            for number in 0..<2 {
                transfers.append(house.transfers.put(sources[number].path, id: id("a\(number)")))
                transfers.append(house.transfers.get(id("there\(number + 2)"), to: house.folder.file("b\(number)")))
            }
            let all = transfers
            async let slowerPut = self.slower(all[0], all[2])
            async let slowerGet = self.slower(all[1], all[3])
            var answered = 0
            while all.contains(where: { $0.result == nil }) {
                let body = ByteBuffer(string: "call \(answered)")
                #expect(try await house.client.data(for: SocketRequest(type: 101, body: body)).body == body)
                answered += 1
            }
            // Each call waits only for some pieces, not for whole files.
            #expect(answered >= 10)
            // Both are about equally fast, except for the times at which they began.
            #expect(try await slowerPut >= UInt64(size / 4))
            #expect(try await slowerGet >= UInt64(size / 4))
            for transfer in all { _ = try await transfer.value }
            for number in 0..<2 {
                #expect(try TransferHouse.describe("\(house.store)/a\(number)") == sources[number].file)
                #expect(try TransferHouse.describe(house.folder.file("b\(number)")) == sources[number + 2].file)
            }
        }
    }
}
