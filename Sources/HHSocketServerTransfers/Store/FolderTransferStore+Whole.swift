// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
public import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore

/// The complete files, and their hashes.
extension FolderTransferStore {
    public func find(_ id: TransferID) async throws -> StoredFile? {
        guard let record = try await self.hash(of: id) else { return nil }
        return StoredFile(record)
    }

    public func open(_ id: TransferID) async throws -> any TransferReader {
        let account = StoreOwner.account
        var hashed: HashRecord?
        // A file that changes again and again is not served.
        for _ in 0..<4 {
            let opened = try await self.onThread(of: id) { [hashed] in try self.openNow(id, hashed, for: account) }
            switch opened {
            case .reader(let reader): return reader
            case .absent: throw Self.notFound(id)
            case .needsHash:
                hashed = try await self.hash(of: id)
                if hashed == nil { throw Self.notFound(id) }
            }
        }
        throw StatusError(.cancelledByServer)
    }

    static func notFound(_ id: TransferID) -> TransferError {
        TransferError(.notFound, "the server's store has no file \(id)")
    }

    private enum Opened: Sendable {
        case reader(FolderTransferReader)
        case absent
        case needsHash
    }

    private func openNow(_ id: TransferID, _ hashed: HashRecord?, for account: (any LinkAccount)?) throws -> Opened {
        try self.withRoot { root in
            guard let (descriptor, status) = try self.openVisible(id, in: root) else { return .absent }
            let file = ReadFile(self, id: id, key: FileKey(status), number: descriptor, of: account)
            let record = hashed?.key == FileKey(status) ? hashed : try self.knownHash(of: id, status, in: root)
            guard let record else { return .needsHash }
            self.openFiles.use(file)
            return .reader(FolderTransferReader(self, id: id, file: file, record: record))
        }
    }

    // MARK: What is visible

    enum Visible {
        case nothing
        case file(FileStatus)
        case folder
        /// A link, a pipe or something else that is no file.
        case other
        /// A file of another id that the file system considers to be the same.
        case otherCase(name: String)
    }

    func visible(_ id: TransferID, in root: CInt) throws -> Visible {
        let status = try self.fileSystem.statusIfPresent(of: id.description, in: root)
        guard let status else { return .nothing }
        if let name = try self.otherName(of: id, status, in: root) { return .otherCase(name: name) }
        switch status.kind {
        case .regular: return .file(status)
        case .folder: return .folder
        case .other: return .other
        }
    }

    /// Returns the actual name, if the file system has found one that differs in case.
    private func otherName(of id: TransferID, _ status: FileStatus, in root: CInt) throws -> String? {
        // The hash of a file that is in memory was found under this very id.
        let known = self.state.withLockedValue { $0.hashes[id]?.record.key }
        guard known != FileKey(status), let other = FolderNames.otherCase(id),
            try self.fileSystem.statusIfPresent(of: other, in: root)?.inode == status.inode
        else { return nil }
        var found: String?
        try self.fileSystem.forEachName(in: root) { name in
            if name == id.description {
                found = nil
                return false
            }
            if FolderNames.differOnlyInCase(name, id) { found = name }
            return true
        }
        return found
    }

    private func openVisible(_ id: TransferID, in root: CInt) throws -> (CInt, FileStatus)? {
        guard case .file = try self.visible(id, in: root) else { return nil }
        let descriptor: CInt
        do throws(SystemError) {
            descriptor = try self.fileSystem.openForReading(id.description, in: root)
        } catch {
            // It has become something else meanwhile.
            if [ENOENT, ELOOP, ENXIO].contains(error.code) { return nil }
            // Reading has nothing to do with a store that cannot be written.
            guard error.isReadOnly else { throw error }
            throw TransferError(.storeFailed, "the server may not read the file \(id)")
        }
        do {
            let status = try self.fileSystem.status(descriptor)
            if status.kind == .regular { return (descriptor, status) }
        } catch {
            self.fileSystem.close(descriptor)
            throw error
        }
        self.fileSystem.close(descriptor)
        return nil
    }

    // MARK: Hashes

    /// Returns the hash of a file, computing it if necessary, together with other tasks that need it.
    ///
    /// - Throws: `CancellationError` if the task is cancelled. The progress is kept for the next attempt.
    func hash(of id: TransferID) async throws -> HashRecord? {
        while true {
            switch try await self.exclusively(for: id, { try self.hashOn(id) }) {
            case .absent: return nil
            case .done(let record): return record
            case .continues: try Task.checkCancellation()
            }
        }
    }

    private enum Hashing: Sendable {
        case absent
        case done(HashRecord)
        case continues
    }

    /// Hashes a part of a file.
    private func hashOn(_ id: TransferID) throws -> Hashing {
        try self.withRoot { root in
            guard let (descriptor, status) = try self.openVisible(id, in: root) else {
                self.state.withLockedValue { $0.hashes[id] = nil }
                return .absent
            }
            defer { self.fileSystem.close(descriptor) }
            if let record = try self.knownHash(of: id, status, in: root) { return .done(record) }
            let key = FileKey(status)
            var hash = self.takePartialHash(of: .whole(id), key) ?? PartialHash()
            let start = hash.position
            try hash.read(descriptor, upTo: status.size, limit: Self.hashLimit, self.fileSystem)
            guard hash.position == status.size else {
                // It is shorter than it was.
                if hash.position == start { throw StatusError(.cancelledByServer) }
                self.keep(hash, of: .whole(id), key)
                return .continues
            }
            // It may have changed meanwhile; then all begins again.
            guard try FileKey(self.fileSystem.status(descriptor)) == key else { return .continues }
            let record = HashRecord(id: id, key: key, digest: hash.digest)
            self.keep(record, isDurable: false, in: root)
            return .done(record)
        }
    }

    /// Returns the hash of a file, if it is stored.
    func knownHash(of id: TransferID, _ status: FileStatus, in root: CInt) throws -> HashRecord? {
        let key = FileKey(status)
        if let known = self.state.withLockedValue({ $0.hashes[id] })?.record, known.key == key { return known }
        // Hashes that cannot be read are made again.
        let bytes = try? self.withFolder(FolderNames.hashes, in: root, makes: false) { folder in
            try self.fileSystem.contents(of: id.description, in: folder, limit: SealedRecord.maximumLength)
        }
        guard let bytes = bytes ?? nil, let record = HashRecord(bytes: bytes), record.id == id, record.key == key
        else { return nil }
        self.remember(KnownHash(record: record, isDurable: false))
        return record
    }

    /// Keeps a hash in memory and on the disk, where it can be written.
    func keep(_ record: HashRecord, isDurable: Bool, in root: CInt) {
        // A file that has just changed may change again before the clock of the file system has moved.
        guard isDurable || record.isSettled(now: self.fileSystem.now()) else { return }
        self.remember(KnownHash(record: record, isDurable: isDurable))
        _ = try? self.withFolder(FolderNames.hashes, in: root, makes: true) { folder in
            try self.fileSystem.replace(
                record.id.description,
                in: folder,
                with: record.bytes,
                temporary: FolderNames.temporary(record.id),
                isSynchronized: false
            )
        }
    }

    func remember(_ hash: KnownHash) {
        self.state.withLockedValue { state in
            state.hashes[hash.record.id] = hash
            if state.hashes.count > Self.maximumHashes, let any = state.hashes.keys.first { state.hashes[any] = nil }
        }
    }

    func takePartialHash(of name: PartialName, _ key: FileKey) -> PartialHash? {
        let partial = self.state.withLockedValue { $0.partial.removeValue(forKey: name) }
        return partial?.key == key ? partial?.hash : nil
    }

    func keep(_ hash: PartialHash, of name: PartialName, _ key: FileKey) {
        self.state.withLockedValue { state in
            state.partial[name] = (key, hash)
            if state.partial.count > Self.maximumPartialHashes, let any = state.partial.keys.first {
                state.partial[any] = nil
            }
        }
    }
}

extension HashRecord {
    /// The time for which a file must not have changed, in milliseconds: longer than the step of any file system's
    /// clock.
    private static let settlingTime: UInt64 = 3_000

    func isSettled(now: UInt64) -> Bool {
        let modified = UInt64(clamping: max(self.key.modified, self.key.changed) / 1_000_000)
        return modified < now && now - modified > Self.settlingTime
    }
}

extension StoredFile {
    init(_ record: HashRecord) {
        self.init(
            file: TransferFile(size: record.key.size, sha256: record.digest),
            modified: .nanoseconds(max(0, record.key.modified))
        )
    }
}

/// A complete file of a ``FolderTransferStore``, open for reading.
struct FolderTransferReader: TransferItemReader {
    let stored: StoredFile
    private let store: FolderTransferStore
    private let id: TransferID
    private let file: ReadFile

    init(_ store: FolderTransferStore, id: TransferID, file: ReadFile, record: HashRecord) {
        self.stored = StoredFile(record)
        self.store = store
        self.id = id
        self.file = file
    }

    func read(at offset: UInt64, count: Int) async throws -> ByteBuffer {
        try await self.store.onThread(of: self.id) {
            var bytes = ByteBuffer()
            try bytes.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { memory in
                try self.file.fill(UnsafeMutableRawBufferPointer(rebasing: memory[..<count]), at: offset)
                return count
            }
            return bytes
        }
    }

    func items(at offset: UInt64, count: Int) async throws -> [ByteBuffer] {
        try await self.store.onThread(of: self.id) {
            try TransferPart.items(offset: offset, count: count) { memory, offset throws(any Error) in
                try self.file.fill(memory, at: offset)
            }
        }
    }
}

extension FolderTransferStore {
    /// Opens a complete file again.
    ///
    /// - Throws: ``/HHSocketServer/StatusError`` with status 409 if there is another one now, so that the client begins
    ///   again.
    func openAgain(_ id: TransferID, _ key: FileKey) throws -> CInt {
        try self.withRoot { root in
            guard let (descriptor, status) = try self.openVisible(id, in: root) else {
                throw StatusError(.cancelledByServer)
            }
            guard FileKey(status).isContent(of: key) else {
                self.fileSystem.close(descriptor)
                throw StatusError(.cancelledByServer)
            }
            return descriptor
        }
    }
}

extension FileKey {
    /// Whether the content is that of the file with the other key. Removing a file's name, or giving it another,
    /// changes only the time of the last change.
    func isContent(of other: Self) -> Bool {
        self.size == other.size && self.modified == other.modified && self.inode == other.inode
    }
}

/// A complete file that is being read. Its descriptor may be closed between two reads (``OpenFiles``), and is closed
/// with the last reference.
final class ReadFile: Sendable {
    private let store: FolderTransferStore
    private let id: TransferID
    private let key: FileKey
    private let account: (any LinkAccount)?
    private let state: NIOLockedValueBox<(descriptor: OpenDescriptor?, users: Int)>

    /// - Parameter account: That of the client whose request has opened it, also when it is opened again.
    init(_ store: FolderTransferStore, id: TransferID, key: FileKey, number: CInt, of account: (any LinkAccount)?) {
        self.store = store
        self.id = id
        self.key = key
        self.account = account
        self.state = NIOLockedValueBox((OpenDescriptor(number, of: account), 0))
    }

    deinit {
        self.store.openFiles.forget(ObjectIdentifier(self))
        if let opened = self.state.withLockedValue({ $0.descriptor }) { self.store.fileSystem.close(opened.number) }
    }

    /// Closes the descriptor.
    ///
    /// - Returns: False if the file is just being read.
    func close() -> Bool {
        let (isUnused, descriptor): (Bool, OpenDescriptor?) = self.state.withLockedValue { state in
            guard state.users == 0 else { return (false, nil) }
            return (true, state.descriptor.take())
        }
        if let descriptor { self.store.fileSystem.close(descriptor.number) }
        return isUnused
    }

    func fill(_ memory: UnsafeMutableRawBufferPointer, at offset: UInt64) throws {
        self.state.withLockedValue { $0.users += 1 }
        defer { self.state.withLockedValue { $0.users -= 1 } }
        // Nothing closes it from here on.
        self.store.openFiles.use(self)
        let descriptor = try self.descriptor()
        let fileSystem = self.store.fileSystem
        let count = try fileSystem.read(descriptor, into: memory, at: offset)
        // A program that writes into the file, instead of replacing it, would make a mixture of it.
        guard count == memory.count, try FileKey(fileSystem.status(descriptor)).isContent(of: self.key) else {
            throw StatusError(.cancelledByServer)
        }
    }

    private func descriptor() throws -> CInt {
        if let descriptor = self.state.withLockedValue({ $0.descriptor }) { return descriptor.number }
        let opened = OpenDescriptor(try self.store.openAgain(self.id, self.key), of: self.account)
        let kept = self.state.withLockedValue { state in
            let kept = state.descriptor ?? opened
            state.descriptor = kept
            return kept
        }
        if kept !== opened { self.store.fileSystem.close(opened.number) }
        return kept.number
    }
}
