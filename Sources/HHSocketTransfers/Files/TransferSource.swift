// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketSystem
import HHSocketTransferValues
import NIOCore

/// The content that is put into a store. Its methods may block, and are called one after the other.
protocol TransferSource: AnyObject, Sendable {
    /// The state of the source before it is hashed; nil if hashing takes no time that is worth using.
    func state() throws(TransferError) -> TransferSourceState?
    /// Reads a part of the content, in the time that a thread may take, starting over after the end.
    ///
    /// - Parameter step: The greatest length of the part.
    /// - Returns: The content's description, once all parts have been read; nil before.
    func describe(step: UInt64) throws(TransferError) -> TransferFile?
    /// Reads a piece as items.
    func items(offset: UInt64, length: UInt64) throws(TransferError) -> [ByteBuffer]
    func close()
}

/// The properties of a source that are known before it is hashed.
struct TransferSourceState: Hashable, Sendable {
    /// The length in bytes.
    var size: UInt64
    /// A value that differs for another file, and for the same file after a change.
    var digest: TransferDigest
}

/// Bytes in memory.
final class MemorySource: TransferSource {
    private let bytes: ByteBuffer

    init(_ bytes: ByteBuffer) {
        self.bytes = bytes
    }

    func state() throws(TransferError) -> TransferSourceState? { nil }

    func describe(step: UInt64) throws(TransferError) -> TransferFile? {
        self.bytes.withUnsafeReadableBytes { TransferFile(of: $0) }
    }

    func items(offset: UInt64, length: UInt64) throws(TransferError) -> [ByteBuffer] {
        let start = self.bytes.readerIndex + Int(offset)
        guard let slice = self.bytes.getSlice(at: start, length: Int(length)) else {
            throw TransferError(.sourceChanged, "the bytes to put are fewer than announced")
        }
        return TransferPart.items(offset: offset, of: slice)
    }

    func close() {}
}

/// A regular file. It is opened once, and checked after each read: a file whose size or modification time changes, or
/// that is replaced, is not sent any further.
final class FileSource: TransferSource, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are accessed only by the methods, which ``FileWork``
    // calls one after the other. Code that reads ahead on another thread accesses only constants.
    private let path: String
    private let what: String
    private let pieceLength: Int
    private let files: any TransferFiles
    private let runsMeanwhile: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var opened: (file: CInt, status: FileStatus)?
    /// The part of it that has been hashed, and the memory for that; nil before the first and after the last.
    private var hashing: (part: HashedPart, memory: PieceMemory)?

    /// - Parameters:
    ///   - what: The transfer, for errors.
    ///   - pieceLength: The largest number of bytes that is read at once.
    ///   - runsMeanwhile: Has another thread run what it is given, soon or never.
    init(
        _ path: String,
        what: String,
        pieceLength: Int,
        files: any TransferFiles,
        runsMeanwhile: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) {
        self.path = path
        self.what = what
        self.pieceLength = pieceLength
        self.files = files
        self.runsMeanwhile = runsMeanwhile
    }

    deinit { self.close() }

    func close() {
        if let opened = self.opened.take() { self.files.close(opened.file) }
    }

    func state() throws(TransferError) -> TransferSourceState? {
        let status = try self.open().status
        guard status.size > HashedPart.step else { return nil }
        return TransferSourceState(size: status.size, digest: status.digest)
    }

    func describe(step: UInt64) throws(TransferError) -> TransferFile? {
        let (file, status) = try self.open()
        let longest = Int(min(UInt64(self.pieceLength), max(1, status.size)))
        var (hashed, memory) = self.hashing.take() ?? (HashedPart(), PieceMemory(length: longest))
        let end = min(status.size, hashed.length + step)
        var next = self.read(file, from: hashed.length, to: end, into: memory.first)
        while let reading = next {
            let length = try reading.finish().get()
            // The other half is read while this one is hashed.
            memory.swap()
            next = self.read(file, from: hashed.length + UInt64(length), to: end, into: memory.first)
            if let next { self.runsMeanwhile { next.begin() } }
            hashed.append(UnsafeRawBufferPointer(rebasing: memory.second[..<length]))
        }
        guard hashed.length == status.size else {
            self.hashing = (hashed, memory)
            return nil
        }
        try self.checkEnd(file, at: status.size, memory.first)
        try self.check(file, status)
        return TransferFile(size: status.size, sha256: TransferDigest(hashed.hash))
    }

    /// Reads the next piece before `end`, immediately or later: no other code accesses `memory` until that is done.
    ///
    /// - Returns: Its length; nil where there is none.
    private func read(
        _ file: CInt,
        from offset: UInt64,
        to end: UInt64,
        into memory: UnsafeMutableRawBufferPointer
    ) -> SharedWork<Result<Int, TransferError>>? {
        guard offset < end else { return nil }
        let length = Int(min(UInt64(memory.count), end - offset))
        // Proof: see above.
        nonisolated(unsafe) let piece = UnsafeMutableRawBufferPointer(rebasing: memory[..<length])
        return SharedWork {
            Result { () throws(TransferError) in
                try self.fill(piece, file, at: offset)
                return length
            }
        }
    }

    func items(offset: UInt64, length: UInt64) throws(TransferError) -> [ByteBuffer] {
        let (file, status) = try self.open()
        let items = try TransferPart.items(offset: offset, count: Int(length)) {
            (memory, offset) throws(TransferError) in
            try self.fill(memory, file, at: offset)
        }
        try self.check(file, status)
        return items
    }

    private func open() throws(TransferError) -> (file: CInt, status: FileStatus) {
        if let opened = self.opened { return opened }
        let file = try self.perform { (files) throws(SystemError) in try files.open(self.path, .reading) }
        do throws(TransferError) {
            let status = try self.perform { (files) throws(SystemError) in try files.status(of: file) }
            guard status.kind == .regular else {
                let kind = status.kind == .folder ? "a folder" : "no plain file"
                throw TransferError(.fileFailed, "\(self.what): \(self.path) is \(kind), and cannot be read twice")
            }
            self.opened = (file, status)
            return (file, status)
        } catch {
            self.files.close(file)
            throw error
        }
    }

    private func perform<Value>(
        _ body: (any TransferFiles) throws(SystemError) -> Value
    ) throws(TransferError) -> Value {
        do throws(SystemError) {
            return try body(self.files)
        } catch {
            throw TransferError(error.at(self.path), of: self.what, writes: false)
        }
    }

    /// Reads as many bytes as `memory` has.
    private func fill(_ memory: UnsafeMutableRawBufferPointer, _ file: CInt, at offset: UInt64) throws(TransferError) {
        var filled = 0
        while filled < memory.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: memory[filled...])
            let next = offset + UInt64(filled)
            let count = try self.perform { (files) throws(SystemError) in try files.read(file, at: next, into: rest) }
            guard count > 0 else { throw self.changed("it has become shorter") }
            filled += min(count, rest.count)
        }
    }

    /// Checks that the content ends where the system says: it says that of files that it generates, such as those in
    /// `/proc`, are empty.
    private func checkEnd(
        _ file: CInt,
        at size: UInt64,
        _ memory: UnsafeMutableRawBufferPointer
    ) throws(TransferError) {
        let byte = UnsafeMutableRawBufferPointer(rebasing: memory[..<1])
        let count = try self.perform { (files) throws(SystemError) in try files.read(file, at: size, into: byte) }
        guard count == 0 else {
            throw TransferError(
                .sourceChanged,
                """
                \(self.what): \(self.path) has more than the \(size) bytes that the system says, as a file has that it \
                generates; copy it first, and put the copy
                """
            )
        }
    }

    private func check(_ file: CInt, _ status: FileStatus) throws(TransferError) {
        let (now, there) = try self.perform { (files) throws(SystemError) in
            (try files.status(of: file), try files.status(at: self.path))
        }
        guard now.size == status.size else { throw self.changed("its size was \(status.size), and is \(now.size)") }
        guard now.modified == status.modified else { throw self.changed("it was modified") }
        // A removed file is still open here.
        if let there, !there.isSameFile(as: status) { throw self.changed("another file has replaced it") }
    }

    private func changed(_ how: String) -> TransferError {
        TransferError(.sourceChanged, "\(self.what): \(self.path) changed while it was sent: \(how)")
    }
}

/// The beginning of a file that has been hashed.
struct HashedPart {
    private(set) var length: UInt64 = 0
    private(set) var hash = SHA256()

    /// The number of bytes that are hashed before other files have their turn.
    static let step: UInt64 = 16 << 20
    /// The number of bytes that are hashed before content has its turn that is sent meanwhile.
    static let stepBesideContent: UInt64 = 1 << 20

    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        self.hash.update(bytes)
        self.length += UInt64(bytes.count)
    }
}

extension FileStatus {
    /// A hash of the file's identity, size and time of modification, by which ``FileSource`` detects a change.
    fileprivate var digest: TransferDigest {
        var hash = SHA256()
        for number in [self.device, self.inode, self.size, UInt64(bitPattern: self.modified)] {
            withUnsafeBytes(of: number.littleEndian) { hash.update($0) }
        }
        return TransferDigest(hash)
    }
}
