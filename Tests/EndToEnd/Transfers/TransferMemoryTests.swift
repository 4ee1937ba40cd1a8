// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import TestSupport
import Testing

/// Transfers take less memory than the size of their files.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(10))) struct TransferMemoryTests {
    private static let size = 256 << 20
    private static let limit = 32 << 20

    /// Returns the largest growth of memory while `body` runs.
    private func growth(during body: () async throws -> Void) async throws -> Int {
        returnFreeMemory()
        let before = residentBytes()
        let peak = NIOLockedValueBox(before)
        let watching = Task {
            while !Task.isCancelled {
                let now = residentBytes()
                peak.withLockedValue { $0 = max($0, now) }
                try await Task.sleep(for: .milliseconds(5))
            }
        }
        let result = await Result { try await body() }
        watching.cancel()
        _ = try? await watching.value
        try result.get()
        return peak.withLockedValue { $0 } - before
    }

    /// A file that takes no room on the disk.
    private func source(_ house: TransferHouse) throws -> String {
        let path = house.folder.file("source")
        try #require(FileManager.default.createFile(atPath: path, contents: nil))
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.truncate(atOffset: UInt64(Self.size))
        try handle.seek(toOffset: UInt64(Self.size) / 3)
        try handle.write(contentsOf: Data("something".utf8))
        try handle.close()
        return path
    }

    @Test func clientAndServerTogetherNeedLittle() async throws {
        try await TransferHouse.with { house in
            let path = try self.source(house)
            // One-time allocations have been made.
            _ = try await house.transfers.put(ByteBuffer(repeating: 1, count: 4 << 20), id: id("warm")).value
            let put = try await self.growth { _ = try await house.transfers.put(path, id: id("a")).value }
            #expect(put <= Self.limit, "a put needs \(put >> 20) MiB")
            let get = try await self.growth {
                _ = try await house.transfers.get(id("a"), to: house.folder.file("copy")).value
            }
            #expect(get <= Self.limit, "a get needs \(get >> 20) MiB")
        }
    }
}
#endif
