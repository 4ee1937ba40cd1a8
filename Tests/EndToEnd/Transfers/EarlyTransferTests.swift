// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketServerTransfers
import TestSupport
import Testing

/// Files that are so large that their content is sent while they are hashed.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct EarlyTransferTests {
    private static let size = 17 << 20

    /// Writes a large file, which is not made of random bytes, since those take long in debug builds.
    private static func file(_ house: TransferHouse, _ letter: String) throws -> (path: String, file: TransferFile) {
        let bytes = Data(repeating: Array(letter.utf8)[0], count: Self.size)
        let path = house.folder.file(letter)
        try bytes.write(to: URL(fileURLWithPath: path))
        return (path, TransferHouse.describe(bytes))
    }

    @Test func contentIsSentWhileTheFileIsHashed() async throws {
        let asked = Watched<[TransferRequest]>([])
        let authorize: TransferService.Authorization = { request, _ in asked.withLockedValue { $0.append(request) } }
        try await TransferHouse.with(authorize: authorize) { house in
            let (path, file) = try Self.file(house, "x")
            let result = try await house.transfers.put(path, id: id("a")).value
            #expect(result.file == file && result.bytesMoved == file.size)
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            #expect(asked.current.map(\.sha256) == [nil, file.sha256])
            // The hash is its id, so it comes first.
            #expect(try await house.transfers.put(path).value.file == file)
            #expect(asked.current.map(\.sha256) == [nil, file.sha256, file.sha256])
            try await house.nothingUnfinished()
        }
    }

    @Test func existingFilesAreNotSentAgain() async throws {
        try await TransferHouse.with { house in
            let (path, file) = try Self.file(house, "x")
            _ = try await house.transfers.put(path, id: id("a")).value
            let again = try await house.transfers.put(path, id: id("a")).value
            #expect(again.file == file && again.bytesMoved == 0)
            let other = try Self.file(house, "y")
            #expect(try await house.transfers.put(other.path, id: id("a")).value.file == other.file)
            #expect(try TransferHouse.describe("\(house.store)/a") == other.file)
        }
    }

    /// Connections break before and after the hash is known.
    @Test func putsContinueOverALinkThatIsCut() async throws {
        let cuts = { @Sendable (number: Int) in
            number < 8 ? CuttingRelay.Allowance(up: 100_000 << min(number, 5)) : .unlimited
        }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, file) = try Self.file(house, "x")
            let result = try await house.transfers.put(path, id: id("a")).value
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            let connections = house.link.connectionCount
            #expect(connections >= 5)
            #expect(house.link.bytesUp < Self.size + connections * 1_400_000)
            #expect(result.file == file)
            try await house.nothingUnfinished()
        }
    }

    @Test func fileThatChangesMeanwhileIsAnError() async throws {
        try await TransferHouse.with(allow: { _ in CuttingRelay.Allowance(up: 300_000) }) { house in
            let (path, _) = try Self.file(house, "x")
            let transfer = house.transfers.put(path, id: id("a"))
            try await house.progress(of: transfer, atLeast: 1)
            try Data(repeating: 0, count: Self.size).write(to: URL(fileURLWithPath: path))
            #expect(try await failure(of: transfer).code == .sourceChanged)
            #expect(try house.visible() == [])
        }
    }
}
