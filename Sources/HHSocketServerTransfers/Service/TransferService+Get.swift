// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketServer
import HHSocketTransferValues
import NIOCore

/// Gives files.
extension TransferService {
    /// The greatest number of bytes that are read at once: with the cost of frames, the amount that a handler may send
    /// before its connection visits.
    static let longestPiece = 4 * TransferPart.lengthInOneFrame

    static func pieceLength(sent: UInt64, left: UInt64) -> Int {
        Int(min(TransferPart.length(after: sent, longest: UInt64(Self.longestPiece)), left))
    }

    func get(_ stream: ServerStream, _ context: ServerContext) async throws {
        do {
            try await self.send(stream, context)
        } catch {
            throw await self.end(stream, because: error, method: .get, context: context) { failure in
                var item = Hhsocket_GetItem()
                item.kind = .failure(failure)
                return try ByteBuffer(message: item)
            }
        }
    }

    private func send(_ stream: ServerStream, _ context: ServerContext) async throws {
        guard let request: Hhsocket_GetRequest = try? stream.request.body.message() else {
            throw TransferError(.invalidRequest, "the server was sent a message other than GetRequest")
        }
        let id = try await self.admit(.get, id: request.id, context: context)
        var busy = Hhsocket_GetItem()
        busy.busy = true
        let reader = try await self.fromStore(stream, sign: ByteBuffer(message: busy)) {
            try await self.store.open(id)
        }
        let file = reader.stored.file
        var offset: UInt64 = 0
        if request.hasBegun, let begun = TransferFile(request.begun), begun == file {
            guard request.offset <= file.size else {
                throw TransferError(
                    .invalidRequest,
                    "a client said that it has \(request.offset) bytes of a file of \(file.size)"
                )
            }
            offset = request.offset
        }
        var begin = Hhsocket_GetItem()
        begin.kind = .begin(Self.makeBegin(file, offset))
        try await stream.send(ByteBuffer(message: begin))
        guard offset < file.size else { return }
        if file.size - offset >= TransferPart.window { stream.carryContent(window: TransferPart.window) }
        try await self.send(reader, from: offset, size: file.size, stream)
    }

    private static func makeBegin(_ file: TransferFile, _ offset: UInt64) -> Hhsocket_GetBegin {
        var begin = Hhsocket_GetBegin()
        begin.file = file.message
        begin.offset = offset
        return begin
    }

    /// Sends the file from `offset` on, and reads each piece while the previous one is sent.
    private func send(
        _ reader: any TransferReader,
        from offset: UInt64,
        size: UInt64,
        _ stream: ServerStream
    ) async throws {
        let first = Self.pieceLength(sent: 0, left: size - offset)
        // A client that grants no more credit makes us hold the piece that it takes, and the next one.
        var held = stream.hold(first)
        var items = try await self.items(of: reader, at: offset, first)
        var end = offset + UInt64(first)
        while end < size {
            let start = end
            let count = Self.pieceLength(sent: start - offset, left: size - start)
            let sent = held.bytes
            held.change(to: sent + count)
            async let next = self.items(of: reader, at: start, count)
            for item in items { try await stream.sendUncompressed(item) }
            items = try await next
            held.change(to: count)
            end = start + UInt64(count)
        }
        for item in items { try await stream.sendUncompressed(item) }
    }

    /// Reads a piece, as items.
    private func items(of reader: any TransferReader, at offset: UInt64, _ count: Int) async throws -> [ByteBuffer] {
        try await self.fromStore {
            if let reader = reader as? any TransferItemReader {
                return try await reader.items(at: offset, count: count)
            }
            let bytes = try await reader.read(at: offset, count: count)
            guard bytes.readableBytes == count else { throw StatusError(.cancelledByServer) }
            return TransferPart.items(offset: offset, of: bytes)
        }
    }
}
