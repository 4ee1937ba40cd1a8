// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
import HHSocketTransferValues
import NIOConcurrencyHelpers

/// The unfinished files on the disk: finding and removing them.
extension FolderTransferStore {
    struct Unfinished {
        var record: UnfinishedRecord
        /// The status of the received content.
        var status: FileStatus
        /// The time of the last write, in milliseconds since 1970.
        var touched: UInt64
    }

    /// Reads the record of an unfinished file, and finds its content. Files that are damaged or do not match are
    /// removed.
    ///
    /// - Returns: Nil if there is nothing that can be continued.
    func readUnfinished(_ id: TransferID, in folder: CInt) throws -> Unfinished? {
        guard let status = try self.fileSystem.statusIfPresent(of: FolderNames.record(id), in: folder) else {
            return nil
        }
        var bytes: [UInt8]?
        if status.kind == .regular {
            let limit = SealedRecord.maximumLength
            bytes = try self.fileSystem.contents(of: FolderNames.record(id), in: folder, limit: limit)
        }
        guard let record = bytes.flatMap({ UnfinishedRecord(bytes: $0) }) else {
            self.removeAll(of: id, in: folder)
            return nil
        }
        guard record.id == id else {
            guard FolderNames.differOnlyInCase(record.id.description, id) else {
                self.removeAll(of: id, in: folder)
                return nil
            }
            throw TransferError(
                .invalidID,
                """
                the server's store cannot tell \(id) from \(record.id), which is being sent: choose an id that differs \
                otherwise
                """
            )
        }
        let content = try self.fileSystem.statusIfPresent(of: record.contentName, in: folder)
        guard let content, content.kind == .regular, content.size <= record.file.size else {
            self.removeAll(of: id, in: folder)
            return nil
        }
        let touched = UInt64(clamping: max(status.modified, content.modified) / 1_000_000)
        return Unfinished(record: record, status: content, touched: touched)
    }

    /// Removes an unfinished file.
    func removeUnfinished(_ record: UnfinishedRecord, in folder: CInt) throws {
        try self.fileSystem.removeIfPresent(record.contentName, in: folder)
        try self.fileSystem.removeIfPresent(FolderNames.record(record.id), in: folder)
        self.forgetUnfinished(record.id)
    }

    /// Removes all files of an id, as far as that is possible.
    func removeAll(of id: TransferID, in folder: CInt) {
        try? self.fileSystem.removeIfPresent(FolderNames.record(id), in: folder)
        var names: [String] = []
        try? self.fileSystem.forEachName(in: folder) { name in
            switch FolderNames.purpose(of: name) {
            case .record(id), .temporary(id), .content(id, _): names.append(name)
            default: break
            }
            return true
        }
        for name in names { try? self.fileSystem.removeIfPresent(name, in: folder) }
        self.forgetUnfinished(id)
    }

    private func forgetUnfinished(_ id: TransferID) {
        self.state.withLockedValue { state in
            state.ledger.remove(id)
            state.partial[.unfinished(id)] = nil
        }
    }

    // MARK: Sweeping

    /// Removes unfinished files that are older than ``TransferLimits/lifetime``, and files that terminated processes
    /// have left. A store that was opened by its path does so automatically, once an hour.
    package func sweep() async {
        let ids = (try? await self.onThread(of: Self.anyID) { try self.unfinishedIDs() }) ?? []
        for id in ids { try? await self.exclusively(for: id) { try self.tidy(id) } }
        try? await self.onThread(of: Self.anyID) { try self.removeUnusedHashes() }
    }

    private static let anyID = TransferID(TransferDigest(SHA256()))

    /// Returns the ids that have a file in the folder of unfinished files.
    func unfinishedIDs() throws -> [TransferID] {
        var ids: Set<TransferID> = []
        try self.withRoot { root in
            _ = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                try self.fileSystem.forEachName(in: folder) { name in
                    switch FolderNames.purpose(of: name) {
                    case .record(let id), .content(let id, _), .temporary(let id): ids.insert(id)
                    case nil: break
                    }
                    return true
                }
            }
        }
        return ids.sorted { $0.description < $1.description }
    }

    /// Enters an unfinished file into the ledger, or removes its remains.
    func tidy(_ id: TransferID) throws {
        guard self.state.withLockedValue({ $0.live[id] == nil }) else { return }
        let now = self.fileSystem.now()
        try self.withRoot { root in
            _ = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                guard let found = try self.readUnfinishedForTidying(id, in: folder, now: now) else {
                    self.state.withLockedValue { $0.ledger.remove(id) }
                    return
                }
                self.state.withLockedValue { state in
                    state.ledger.found(found.record, received: found.status.size, touched: found.touched)
                }
                try self.removeIfExpired(id)
            }
        }
    }

    /// The time for which something may be incomplete, in milliseconds, as another process may be about to complete it.
    private static let youth: UInt64 = 60_000

    private func readUnfinishedForTidying(_ id: TransferID, in folder: CInt, now: UInt64) throws -> Unfinished? {
        let record = try self.fileSystem.statusIfPresent(of: FolderNames.record(id), in: folder)
        let temporary = try self.fileSystem.statusIfPresent(of: FolderNames.temporary(id), in: folder)
        for status in [record, temporary].compactMap({ $0 }) {
            let changed = UInt64(clamping: max(status.modified, status.changed) / 1_000_000)
            if changed < now, now - changed < Self.youth { return try self.readIfSound(id, in: folder) }
        }
        if temporary != nil { try? self.fileSystem.removeIfPresent(FolderNames.temporary(id), in: folder) }
        guard record != nil else {
            // Content without a record.
            self.removeAll(of: id, in: folder)
            return nil
        }
        return try self.readUnfinished(id, in: folder)
    }

    /// Reads a recent record, and removes only a record that can never be read.
    private func readIfSound(_ id: TransferID, in folder: CInt) throws -> Unfinished? {
        let name = FolderNames.record(id)
        guard let bytes = try? self.fileSystem.contents(of: name, in: folder, limit: SealedRecord.maximumLength),
            let record = UnfinishedRecord(bytes: bytes), record.id == id,
            try self.fileSystem.statusIfPresent(of: record.contentName, in: folder) == nil
        else { return try self.readUnfinished(id, in: folder) }
        return nil
    }

    func removeIfExpired(_ id: TransferID) throws {
        let now = self.fileSystem.now()
        let isExpired = self.state.withLockedValue { $0.ledger.expired(now: now).contains(id) }
        guard isExpired else { return }
        try self.withRoot { root in
            _ = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                // Another process may have continued it.
                guard let found = try self.readUnfinished(id, in: folder) else { return }
                self.state.withLockedValue { state in
                    state.ledger.found(found.record, received: found.status.size, touched: found.touched)
                }
                guard self.state.withLockedValue({ $0.ledger.expired(now: now).contains(id) }) else { return }
                let descriptor = try self.openIfUnused(found.record, in: folder)
                defer { if let descriptor { self.fileSystem.close(descriptor) } }
                if descriptor != nil { try self.removeUnfinished(found.record, in: folder) }
            }
        }
    }

    /// Nil if another process is at work on it.
    func openIfUnused(_ record: UnfinishedRecord, in folder: CInt) throws -> CInt? {
        let descriptor = try self.fileSystem.openForWriting(record.contentName, in: folder)
        guard self.fileSystem.lock(descriptor) else {
            self.fileSystem.close(descriptor)
            return nil
        }
        return descriptor
    }

    /// Removes the hashes of files that no longer exist.
    private func removeUnusedHashes() throws {
        try self.withRoot { root in
            _ = try self.withFolder(FolderNames.hashes, in: root, makes: false) { folder in
                try self.fileSystem.forEachName(in: folder) { name in
                    let id = String(name.prefix { $0 != "+" })
                    let isThere = (try? self.fileSystem.statusIfPresent(of: id, in: root)) ?? nil
                    if isThere == nil { try? self.fileSystem.remove(name, in: folder) }
                    return true
                }
            }
        }
    }
}
