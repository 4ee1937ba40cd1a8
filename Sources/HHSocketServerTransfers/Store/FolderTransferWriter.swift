// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore

/// The writer of an unfinished file of a ``FolderTransferStore``.
struct FolderTransferWriter: ThreadedTransferWriter, EarlyTransferWriter {
    let offset: UInt64
    private let store: FolderTransferStore
    private let live: LivePut

    init(_ store: FolderTransferStore, _ live: LivePut, offset: UInt64) {
        self.store = store
        self.live = live
        self.offset = offset
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    var executor: any TaskExecutor { self.store.executor(of: self.live.id) }

    func append(_ parts: [ByteBuffer]) async throws {
        try await self.store.exclusively(for: self.live.id) { try self.store.append(parts, to: self.live) }
    }

    func appendHere(_ parts: [ByteBuffer]) async throws {
        try await self.store.exclusivelyHere(for: self.live.id) { try self.store.append(parts, to: self.live) }
        await self.store.giveWay()
    }

    func identify(as sha256: TransferDigest) async throws {
        try await self.store.exclusively(for: self.live.id) { try self.store.identify(self.live, as: sha256) }
    }

    func finish() async throws {
        // Content that an earlier process has left is hashed again. In parts, so that other operations get their turn.
        while try await !self.store.exclusively(for: self.live.id, { try self.store.catchUp(self.live) }) {
            try Task.checkCancellation()
        }
        try await self.store.exclusively(for: self.live.id) { try self.store.finish(self.live) }
    }

    func close() async {
        try? await self.store.exclusively(for: self.live.id) { self.store.close(self.live) }
    }
}

extension FolderTransferStore {
    fileprivate func append(_ parts: [ByteBuffer], to live: LivePut) throws {
        do {
            let flushes = try live.withContent { content in
                try content.append(parts, self.fileSystem)
                return content.takeFlush(every: self.durableLength)
            }
            if flushes { try self.flush(live) }
        } catch let error as SystemError {
            if error.isShortage { self.remove(live, error.asTransferError) }
            throw error
        }
    }

    /// Starts to write received content to the disk while more arrives, and then its record, without which it is worth
    /// nothing.
    private func flush(_ live: LivePut) throws {
        let name = try live.withContent { $0.name }
        self.inBackground(of: live.id) {
            try? self.withRoot { root in
                _ = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                    try self.withFile(name, in: folder) { self.fileSystem.flush($0) }
                    // It may be the next writer's already.
                    try self.withFile(FolderNames.record(live.id), in: folder) { try self.fileSystem.synchronize($0) }
                    try self.fileSystem.synchronize(folder)
                }
            }
        }
    }

    /// Works on a file by a separate descriptor, since the writer's may be closed at any time.
    private func withFile(_ name: String, in folder: CInt, _ body: (CInt) throws -> Void) throws {
        let descriptor = try self.fileSystem.openForReading(name, in: folder)
        defer { self.fileSystem.close(descriptor) }
        try body(descriptor)
    }

    /// Records the hash of content that was begun without.
    fileprivate func identify(_ live: LivePut, as sha256: TransferDigest) throws {
        let file = try live.withContent { $0.file }
        try self.withRoot { root in
            let isDone = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                guard let found = try self.readUnfinished(live.id, in: folder), found.record.file == file else {
                    return false
                }
                _ = try self.identify(found, as: sha256, in: folder)
                return true
            }
            // Another process has removed or replaced it.
            guard isDone == true else { throw StatusError(.cancelledByServer) }
        }
        try live.withContent { $0.file.sha256 = sha256 }
    }

    /// Hashes on. Returns whether all has been hashed.
    fileprivate func catchUp(_ live: LivePut) throws -> Bool {
        try live.withContent { content in
            try content.catchUp(limit: Self.hashLimit, self.fileSystem)
            return content.isHashed
        }
    }

    /// - Parameter error: The error that the writer throws; nil if it closes the file itself.
    func close(_ live: LivePut, _ error: (any Error)? = nil) {
        self.forget(live)
        guard let content = live.end(error) else { return }
        let status = try? self.fileSystem.status(content.descriptor.number)
        if let status { self.keep(content.hash, of: .unfinished(live.id), FileKey(status)) }
        let now = self.fileSystem.now()
        let record = self.state.withLockedValue { state in
            state.ledger.closed(live.id, received: status?.size ?? content.offset, now: now)
            return state.ledger.entries[live.id]?.record
        }
        // Nothing is lost with it, and announcing files costs a client nothing.
        if content.offset == 0, status?.size == 0, let record, record.superseded.isEmpty {
            try? self.withRoot { root in
                _ = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                    try self.removeUnfinished(record, in: folder)
                }
            }
        }
        self.fileSystem.close(content.descriptor.number)
    }

    /// Ends the work of a writer whose file cannot be continued, and removes it.
    private func remove(_ live: LivePut, _ error: any Error) {
        self.forget(live)
        let content = live.end(error)
        try? self.withRoot { root in
            _ = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                self.removeAll(of: live.id, in: folder)
            }
        }
        // If that has failed, the space at least is free.
        if let content { self.fileSystem.close(content.descriptor.number) }
    }

    // MARK: Finishing

    fileprivate func finish(_ live: LivePut) throws {
        let (descriptor, name, file, digest) = try live.withContent { content in
            guard content.offset == content.file.size, content.isHashed else {
                throw TransferError(
                    .invalidRequest,
                    "the content ended after \(content.offset) of \(content.file.size) bytes"
                )
            }
            return (content.descriptor, content.name, content.file, content.hash.digest)
        }
        guard digest == file.sha256 else {
            let error = TransferError(
                .wrongHash,
                "the received content has the SHA-256 \(digest) instead of \(file.sha256) and was discarded"
            )
            self.remove(live, error)
            throw error
        }
        do {
            try self.fileSystem.synchronize(descriptor.number)
        } catch {
            // After such a failure the system may report success although the data is lost.
            if !error.isReadOnly { self.remove(live, error.asTransferError) }
            throw error
        }
        try self.withRoot { root in
            do {
                try Self.checkMayReplace(self.visible(live.id, in: root), live.id)
            } catch let error as TransferError {
                self.remove(live, error)
                throw error
            }
            try self.publish(live, name: name, file: file, in: root)
        }
    }

    /// Makes the file visible.
    private func publish(_ live: LivePut, name: String, file: TransferFile, in root: CInt) throws {
        let published = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
            do throws(SystemError) {
                try self.fileSystem.rename(name, in: folder, to: live.id.description, in: root)
            } catch {
                if error.isShortage || error.isAbsence { self.remove(live, error.asTransferError) }
                throw error
            }
            // From here on the file exists, whatever happens.
            self.forget(live)
            let content = live.end(nil)
            defer { if let content { self.fileSystem.close(content.descriptor.number) } }
            try? self.fileSystem.removeIfPresent(FolderNames.record(live.id), in: folder)
            self.state.withLockedValue { $0.ledger.remove(live.id) }
            try self.fileSystem.synchronize(root)
            if let content, let status = try? self.fileSystem.status(content.descriptor.number) {
                let record = HashRecord(id: live.id, key: FileKey(status), digest: file.sha256)
                self.keep(record, isDurable: true, in: root)
            }
            return true
        }
        guard published == true else {
            let error = TransferError(.storeFailed, "the unfinished file was removed from the server's store")
            self.remove(live, error)
            throw error
        }
    }
}
