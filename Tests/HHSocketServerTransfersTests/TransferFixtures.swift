// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer
@testable import HHSocketServerTransfers

extension TransferFile {
    init(of bytes: [UInt8]) {
        self = bytes.withUnsafeBytes { Self(of: $0) }
    }
}

extension TransferID: ExpressibleByStringLiteral {
    package init(stringLiteral text: String) {
        guard let id = Self(text) else { preconditionFailure("\(text) is no id") }
        self = id
    }
}

extension TransferPut {
    init(_ id: TransferID, _ bytes: [UInt8], writer: UInt64 = 1, owner: String = "somebody") {
        self.init(id: id, file: TransferFile(of: bytes), writer: writer, owner: owner)
    }
}

/// Bytes that differ at each place, and with each seed.
func content(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    var random = SeededGenerator(seed: seed)
    return random.bytes(count)
}

/// Records a store's notification that another writer has begun.
final class EndNote: Sendable {
    private let box = NIOLockedValueBox<[any Error]>([])

    var errors: [any Error] { self.box.withLockedValue { $0 } }

    func callback() -> @Sendable (any Error) -> Void {
        { error in self.box.withLockedValue { $0.append(error) } }
    }
}

extension FolderTransferStore {
    /// Waits until the threads have nothing to do.
    func isIdle(fileID: String = #fileID, line: Int = #line) async throws {
        try await eventually("the store's threads are idle", fileID: fileID, line: line) { self.threads.isIdle }
    }
}

extension TransferStore {
    /// Begins a put that is not complete.
    func beginUnfinished(
        _ put: TransferPut,
        _ note: EndNote = EndNote()
    ) async throws -> (writer: any TransferWriter, isChanged: Bool) {
        switch try await self.begin(put, onEnd: note.callback()) {
        case .complete: throw Unexpected(description: "it is complete")
        case .unfinished(let writer, let isChanged): return (writer, isChanged)
        }
    }

    /// Puts a file in pieces. Returns the offset from which it was sent; nil if nothing was sent.
    @discardableResult
    func put(
        _ id: TransferID,
        _ bytes: [UInt8],
        writer: UInt64 = 1,
        owner: String = "somebody",
        pieceLength: Int = 1_000
    ) async throws -> Int? {
        switch try await self.begin(TransferPut(id, bytes, writer: writer, owner: owner), onEnd: { _ in }) {
        case .complete: return nil
        case .unfinished(let unfinished, _):
            do {
                try await unfinished.append(bytes, from: Int(unfinished.offset), pieceLength: pieceLength)
                try await unfinished.finish()
            } catch {
                await unfinished.close()
                throw error
            }
            await unfinished.close()
            return Int(unfinished.offset)
        }
    }

    /// Sends the beginning of a file, and leaves it unfinished.
    func interruptPut(
        _ id: TransferID,
        _ bytes: [UInt8],
        after count: Int,
        writer: UInt64 = 1,
        owner: String = "somebody"
    ) async throws {
        let put = TransferPut(id, bytes, writer: writer, owner: owner)
        let unfinished = try await self.beginUnfinished(put).writer
        let start = Int(unfinished.offset)
        try await unfinished.append(Array(bytes.prefix(count)), from: start)
        await unfinished.close()
    }

    func get(_ id: TransferID, pieceLength: Int = 777) async throws -> [UInt8] {
        let reader = try await self.open(id)
        var bytes: [UInt8] = []
        let size = Int(reader.stored.file.size)
        while bytes.count < size {
            let piece = try await reader.read(at: UInt64(bytes.count), count: min(pieceLength, size - bytes.count))
            bytes += Array(buffer: piece)
        }
        #expect(TransferFile(of: bytes) == reader.stored.file)
        return bytes
    }
}

extension TransferWriter {
    func append(_ bytes: [UInt8], from start: Int, pieceLength: Int = 1_000) async throws {
        var start = start
        while start < bytes.count {
            let piece = bytes[start..<min(start + pieceLength, bytes.count)]
            try await self.append([ByteBuffer(bytes: piece)])
            start += pieceLength
        }
    }
}

/// Expects a transfer to fail with a code.
func expectFailure(
    _ code: TransferError.Code,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () async throws -> Void
) async {
    do {
        try await body()
        Issue.record("it did not fail with \(code)", sourceLocation: sourceLocation)
    } catch let error as TransferError {
        #expect(error.code == code, "\(error)", sourceLocation: sourceLocation)
    } catch {
        Issue.record("\(error), not \(code)", sourceLocation: sourceLocation)
    }
}

/// Expects an answer with a status.
func expectStatus(
    _ status: Status,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () async throws -> Void
) async {
    do {
        try await body()
        Issue.record("it did not fail with \(status)", sourceLocation: sourceLocation)
    } catch {
        #expect((error as? StatusError)?.status == status, "\(error)", sourceLocation: sourceLocation)
    }
}
