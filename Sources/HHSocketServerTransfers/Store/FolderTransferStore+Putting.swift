// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
public import HHSocketTransferValues
import NIOConcurrencyHelpers

/// Beginning and ending puts.
extension FolderTransferStore: EarlyTransferStore {
    public func begin(
        _ put: TransferPut,
        onEnd: @escaping @Sendable (any Error) -> Void
    ) async throws -> TransferBeginning {
        await self.removeExpired()
        let account = StoreOwner.account
        var hashed: HashRecord?
        // A file that changes again and again is not the one that is put.
        for attempt in 0..<4 {
            let begun = try await self.exclusively(for: put.id) { [hashed] in
                try self.beginNow(put, hashed: hashed, mayHash: attempt < 3, for: account, onEnd: onEnd)
            }
            switch begun {
            case .complete: return .complete
            case .unfinished(let writer, let isChanged): return .unfinished(writer, changed: isChanged)
            case .needsHash: hashed = try await self.hash(of: put.id)
            }
        }
        throw StatusError(.cancelledByServer)
    }

    func beginEarly(
        _ put: TransferPut,
        onEnd: @escaping @Sendable (any Error) -> Void
    ) async throws -> (any EarlyTransferWriter, isChanged: Bool)? {
        await self.removeExpired()
        let account = StoreOwner.account
        let begun = try await self.exclusively(for: put.id) {
            try self.mayBeginEarly(put) ? self.beginNow(put, mayHash: false, for: account, onEnd: onEnd) : nil
        }
        guard case .unfinished(let writer, let isChanged) = begun else { return nil }
        return (writer, isChanged)
    }

    /// Whether neither a complete file nor an unfinished one may have the content.
    private func mayBeginEarly(_ put: TransferPut) throws -> Bool {
        try self.withRoot { root in
            if case .file(let status) = try self.visible(put.id, in: root), status.size == put.file.size {
                return false
            }
            let found = try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                try self.readUnfinished(put.id, in: folder)
            }
            guard let file = found??.record.file else { return true }
            return file == put.file || file.size != put.file.size
        }
    }

    private func removeExpired() async {
        for id in self.state.withLockedValue({ [now = self.fileSystem.now()] in $0.ledger.expired(now: now) }) {
            try? await self.exclusively(for: id) { try self.removeIfExpired(id) }
        }
    }

    public func discard(_ id: TransferID, writer: UInt64) async throws -> Bool {
        try await self.exclusively(for: id) {
            try self.withRoot { root in
                try self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
                    guard let found = try self.readUnfinished(id, in: folder), found.record.writer == writer else {
                        return false
                    }
                    self.end(id, StatusError(.cancelledByServer))
                    try self.removeUnfinished(found.record, in: folder)
                    return true
                } ?? false
            }
        }
    }

    enum Begun: Sendable {
        case complete
        case unfinished(FolderTransferWriter, isChanged: Bool)
        /// The complete file may have the announced content.
        case needsHash
    }

    private func beginNow(
        _ put: TransferPut,
        hashed: HashRecord? = nil,
        mayHash: Bool,
        for account: (any LinkAccount)?,
        onEnd: @escaping @Sendable (any Error) -> Void
    ) throws -> Begun {
        try self.withRoot { root in
            let visible = try self.visible(put.id, in: root)
            try Self.checkMayReplace(visible, put.id)
            if case .file(let status) = visible, status.size == put.file.size {
                let known =
                    hashed?.key == FileKey(status) ? hashed : try self.knownHash(of: put.id, status, in: root)
                if known == nil, mayHash { return .needsHash }
                if let known, known.digest == put.file.sha256 {
                    try self.settle(put, known, in: root)
                    return .complete
                }
            }
            let begun = try self.withFolder(FolderNames.unfinished, in: root, makes: true) { folder in
                try self.beginUnfinished(put, in: folder, for: account, onEnd)
            }
            guard let begun else { throw TransferError(.storeFailed, "the server's store has no folder") }
            return begun
        }
    }

    static func checkMayReplace(_ visible: Visible, _ id: TransferID) throws(TransferError) {
        switch visible {
        case .nothing, .file, .other: break
        case .folder:
            throw TransferError(.storeFailed, "\(id) is the name of a folder in the server's store: choose another id")
        case .otherCase(let name): throw Self.otherCase(id, name)
        }
    }

    private static func otherCase(_ id: TransferID, _ name: String) -> TransferError {
        TransferError(
            .invalidID,
            "the server's store cannot tell \(id) from \(name), which it has: choose an id that differs otherwise"
        )
    }

    /// Handles a put of a file that exists already. Makes sure that the file survives a power failure, as after any
    /// put.
    private func settle(_ put: TransferPut, _ known: HashRecord, in root: CInt) throws {
        let isDurable = self.state.withLockedValue { state in
            state.hashes[put.id].map { $0.isDurable && $0.record == known } ?? false
        }
        if !isDurable {
            do throws(SystemError) {
                let descriptor = try self.fileSystem.openForReading(put.id.description, in: root)
                defer { self.fileSystem.close(descriptor) }
                try self.fileSystem.synchronize(descriptor)
                try self.fileSystem.synchronize(root)
            } catch {
                // In a folder that cannot be written, nothing waits to be written.
                if !error.isReadOnly { throw error }
            }
            if self.state.withLockedValue({ $0.hashes[put.id]?.record == known }) {
                self.remember(KnownHash(record: known, isDurable: true))
            }
        }
        // A put that ended just before it had cleaned up may have left files.
        guard self.state.withLockedValue({ $0.live[put.id] == nil }) else { return }
        _ = try? self.withFolder(FolderNames.unfinished, in: root, makes: false) { folder in
            guard let found = try self.readUnfinished(put.id, in: folder), found.record.file == put.file else { return }
            try self.removeUnfinished(found.record, in: folder)
        }
    }

    // MARK: The unfinished file

    private func beginUnfinished(
        _ put: TransferPut,
        in folder: CInt,
        for account: (any LinkAccount)?,
        _ onEnd: @escaping @Sendable (any Error) -> Void
    ) throws -> Begun {
        var found = try self.readUnfinished(put.id, in: folder)
        // It was begun before the hash was known.
        if let unfinished = found, let early = put.early, unfinished.record.file == early.file {
            found = try self.identify(unfinished, as: put.file.sha256, in: folder)
        }
        let now = self.fileSystem.now()
        // Another process has removed it.
        if found == nil { self.end(put.id, StatusError(.cancelledByServer)) }
        let (plan, isLive) = try self.state.withLockedValue { state in
            if let found {
                let (received, touched) = (found.status.size, found.touched)
                state.ledger.found(found.record, received: received, touched: touched)
            } else {
                state.ledger.remove(put.id)
            }
            // A writer that sends nothing has announced bytes that others could send.
            if state.ledger.isFull(for: put), self.openFiles.endIdle() { throw StatusError(.overloaded) }
            return (try state.ledger.plan(put, now: now), state.live[put.id] != nil)
        }
        let slot = try self.slot(for: put)
        // It is open where a writer is at work. Otherwise another process may be: then the client tries again.
        var old: OpenDescriptor?
        if !isLive, let found {
            guard let number = try self.openIfUnused(found.record, in: folder) else { throw StatusError(.overloaded) }
            old = OpenDescriptor(number, of: account)
        }
        let content: UnfinishedContent
        do {
            if plan.isRecordNew {
                let received = plan.isContentKept ? found?.status.size : nil
                try self.write(plan.record, received: received ?? 0, in: folder)
            }
            content =
                if plan.isContentKept, let found {
                    try self.continued(put, plan: plan, found: found, old: old, at: slot)
                } else {
                    try self.renewed(put, plan: plan, former: found, old: old, at: slot, in: folder, for: account)
                }
        } catch {
            if let old { self.fileSystem.close(old.number) }
            self.clearAway(put.id, after: error, wasThere: found != nil, in: folder)
            throw error
        }
        let live = LivePut(put.id, content, onEnd: onEnd)
        slot.onEnd { [weak self, weak live] in
            Task {
                guard let self, let live else { return }
                try? await self.exclusively(for: live.id) { self.close(live, StatusError(.overloaded)) }
            }
        }
        self.state.withLockedValue { state in
            state.live[put.id] = live
            state.ledger.opened(plan.record, received: content.offset, now: now)
        }
        return .unfinished(FolderTransferWriter(self, live, offset: content.offset), isChanged: plan.isChanged)
    }

    /// Returns the slot of the descriptor: that of the writer at work, or a new one.
    private func slot(for put: TransferPut) throws -> OpenFiles.Slot {
        let live = self.state.withLockedValue { $0.live[put.id] }
        if let slot = try? live?.withContent({ $0.slot }) { return slot }
        return try self.openFiles.takeSlot(for: put.owner)
    }

    /// Continues the received part of this content.
    private func continued(
        _ put: TransferPut,
        plan: UnfinishedLedger.Plan,
        found: Unfinished,
        old: OpenDescriptor?,
        at slot: OpenFiles.Slot
    ) throws -> UnfinishedContent {
        guard let old else {
            // The hash is continued as well.
            guard var content = self.end(put.id, Self.reason(plan, put.id), closes: false) else {
                throw StatusError(.overloaded)
            }
            content.file = put.file
            return content
        }
        let status = try self.fileSystem.status(old.number)
        let hash = self.takePartialHash(of: .unfinished(put.id), FileKey(status)) ?? PartialHash()
        let name = found.record.contentName
        return UnfinishedContent(old, at: slot, name: name, file: put.file, offset: status.size, hash: hash)
    }

    /// Begins the content that the record describes.
    private func renewed(
        _ put: TransferPut,
        plan: UnfinishedLedger.Plan,
        former: Unfinished?,
        old: OpenDescriptor?,
        at slot: OpenFiles.Slot,
        in folder: CInt,
        for account: (any LinkAccount)?
    ) throws -> UnfinishedContent {
        self.end(put.id, Self.reason(plan, put.id))
        if let former { try self.fileSystem.removeIfPresent(former.record.contentName, in: folder) }
        let name = FolderNames.content(put.id, put.file.sha256)
        // Content that no record describes.
        try self.fileSystem.removeIfPresent(name, in: folder)
        let descriptor = try self.fileSystem.create(name, in: folder)
        _ = self.fileSystem.lock(descriptor)
        if let old { self.fileSystem.close(old.number) }
        return UnfinishedContent(OpenDescriptor(descriptor, of: account), at: slot, name: name, file: put.file)
    }

    private static func reason(_ plan: UnfinishedLedger.Plan, _ id: TransferID) -> any Error {
        plan.supersedes ? UnfinishedLedger.superseded(id) : StatusError(.cancelledByServer)
    }

    /// Records the hash of content that was begun without.
    func identify(
        _ unfinished: Unfinished,
        as sha256: TransferDigest,
        in folder: CInt
    ) throws(SystemError) -> Unfinished {
        var identified = unfinished
        identified.record.identify(as: sha256)
        let (received, touched) = (identified.status.size, identified.touched)
        try self.write(identified.record, received: received, in: folder)
        self.state.withLockedValue { $0.ledger.found(identified.record, received: received, touched: touched) }
        return identified
    }

    /// - Parameter received: The length of the content that is kept with the record.
    private func write(_ record: UnfinishedRecord, received: UInt64, in folder: CInt) throws(SystemError) {
        try self.fileSystem.replace(
            FolderNames.record(record.id),
            in: folder,
            with: record.bytes,
            temporary: FolderNames.temporary(record.id),
            // Announcing files costs clients nothing, so the disk is not waited for before there is content.
            isSynchronized: received >= self.durableLength
        )
    }

    /// Removes what cannot be continued after a failure to begin.
    private func clearAway(_ id: TransferID, after error: any Error, wasThere: Bool, in folder: CInt) {
        let isShortage = (error as? SystemError)?.isShortage ?? false
        guard !wasThere || isShortage else { return }
        self.end(id, error is SystemError ? (error as? SystemError)?.asTransferError ?? error : error)
        self.removeAll(of: id, in: folder)
    }

    // MARK: The end of a writer's work

    /// Ends the work of the writer that may be at work.
    ///
    /// - Parameter closes: Whether its content is closed; else it is handed over.
    @discardableResult
    func end(_ id: TransferID, _ error: (any Error)?, closes: Bool = true) -> UnfinishedContent? {
        let live: LivePut? = self.state.withLockedValue { $0.live.removeValue(forKey: id) }
        guard let content = live?.end(error) else { return nil }
        if closes { self.fileSystem.close(content.descriptor.number) }
        return content
    }

    /// Forgets a writer whose work has ended.
    func forget(_ live: LivePut) {
        self.state.withLockedValue { state in
            if state.live[live.id] === live { state.live[live.id] = nil }
        }
    }
}
