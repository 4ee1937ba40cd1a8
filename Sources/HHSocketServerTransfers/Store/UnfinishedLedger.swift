// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocketServer
import HHSocketTransferValues

/// The account of a store's unfinished files: who writes which, who may begin another, and which have been there for
/// too long. No I/O; the time is passed in, in milliseconds since 1970.
///
/// The files on the disk are authoritative: before a decision the shell enters what it has found there
/// (``found(_:received:touched:)``, ``remove(_:)``), and afterwards what it has created (``opened(_:received:now:)``).
struct UnfinishedLedger: Sendable {
    struct Entry: Hashable, Sendable {
        var record: UnfinishedRecord
        /// The number of bytes received.
        var received: UInt64
        /// The time of the last write.
        var touched: UInt64
        /// Whether a writer is at work on it.
        var isLive: Bool

        /// The share of the limit on the bytes of all.
        var held: UInt64 { self.isLive ? self.record.file.size : self.received }
    }

    /// The result of a decision to begin.
    struct Plan: Hashable, Sendable {
        /// The record to be stored beside the file.
        var record: UnfinishedRecord
        /// Whether it differs from the stored record.
        var isRecordNew: Bool
        /// Whether the received content is kept.
        var isContentKept: Bool
        /// Whether another content was unfinished.
        var isChanged: Bool
        /// Whether another writer is at work, or was last.
        var supersedes: Bool
    }

    private struct Usage: Hashable, Sendable {
        var files = 0
        /// The number of bytes, as announced.
        var bytes: UInt64 = 0
    }

    /// A superseded writer of an id that no longer has an unfinished file.
    private struct FormerWriter: Hashable, Sendable {
        var id: TransferID
        var writer: UInt64
    }

    /// The number of writers that are remembered after their file is no longer unfinished.
    static let maximumFormerWriters = 4_096

    let limits: TransferLimits
    private(set) var entries: [TransferID: Entry] = [:]
    private var owners: [String: Usage] = [:]
    /// The number of bytes that count towards the limit for all identities. Peers choose the sizes, so sums wrap and do
    /// not trap.
    private(set) var heldBytes: UInt64 = 0
    private var former: Set<FormerWriter> = []
    /// The oldest first.
    private var formerInOrder: Deque<FormerWriter> = []

    init(limits: TransferLimits) {
        self.limits = limits
    }

    // MARK: What there is

    /// Enters what is on the disk.
    mutating func found(_ record: UnfinishedRecord, received: UInt64, touched: UInt64) {
        let isLive = self.entries[record.id]?.isLive ?? false
        self.set(Entry(record: record, received: received, touched: touched, isLive: isLive))
    }

    /// A writer is at work.
    mutating func opened(_ record: UnfinishedRecord, received: UInt64, now: UInt64) {
        self.set(Entry(record: record, received: received, touched: now, isLive: true))
    }

    /// The writer has stopped.
    mutating func closed(_ id: TransferID, received: UInt64, now: UInt64) {
        guard let entry = self.entries[id] else { return }
        self.set(Entry(record: entry.record, received: received, touched: now, isLive: false))
    }

    /// Records that the id has no unfinished file.
    mutating func remove(_ id: TransferID) {
        guard let entry = self.entries.removeValue(forKey: id) else { return }
        self.discount(entry)
        for writer in entry.record.superseded { self.remember(FormerWriter(id: id, writer: writer)) }
    }

    private mutating func set(_ entry: Entry) {
        if let old = self.entries.updateValue(entry, forKey: entry.record.id) { self.discount(old) }
        self.owners[entry.record.owner, default: Usage()].files += 1
        self.owners[entry.record.owner]?.bytes &+= entry.record.file.size
        self.heldBytes &+= entry.held
    }

    private mutating func discount(_ entry: Entry) {
        self.heldBytes &-= entry.held
        guard var usage = self.owners[entry.record.owner] else { return }
        usage.files -= 1
        usage.bytes &-= entry.record.file.size
        self.owners[entry.record.owner] = usage.files > 0 ? usage : nil
    }

    private mutating func remember(_ writer: FormerWriter) {
        guard self.former.insert(writer).inserted else { return }
        self.formerInOrder.append(writer)
        if self.formerInOrder.count > Self.maximumFormerWriters, let oldest = self.formerInOrder.popFirst() {
            self.former.remove(oldest)
        }
    }

    // MARK: Decisions

    /// Decides whether a put may begin, and how.
    func plan(_ put: TransferPut, now: UInt64) throws(TransferError) -> Plan {
        let entry = self.entries[put.id]
        let isEnded = entry?.record.superseded.contains(put.writer) ?? false
        guard !isEnded, !self.former.contains(FormerWriter(id: put.id, writer: put.writer)) else {
            throw Self.superseded(put.id)
        }
        try self.checkLimits(put, besides: entry)
        guard let entry else {
            let record = UnfinishedRecord(put, begun: now)
            return Plan(record: record, isRecordNew: true, isContentKept: false, isChanged: false, supersedes: false)
        }
        var record = entry.record
        record.continueWith(put, now: now)
        let isKept = entry.record.file == put.file
        return Plan(
            record: record,
            isRecordNew: record != entry.record,
            isContentKept: isKept,
            isChanged: !isKept,
            supersedes: entry.record.writer != put.writer
        )
    }

    static func superseded(_ id: TransferID) -> TransferError {
        TransferError(.superseded, "another client has begun to send a file as \(id) after this one had")
    }

    private func checkLimits(_ put: TransferPut, besides entry: Entry?) throws(TransferError) {
        let owner = UnfinishedRecord.short(put.owner)
        var own = self.owners[owner] ?? Usage()
        if let entry, entry.record.owner == owner {
            own.files -= 1
            own.bytes &-= entry.record.file.size
        }
        let (limits, size) = (self.limits, put.file.size)
        guard own.files < limits.maximumFilesPerIdentity else {
            throw TransferError(
                .quota,
                """
                this client has \(own.files) unfinished files at the server, and may have \
                \(limits.maximumFilesPerIdentity): finish or discard one of them
                """
            )
        }
        guard Self.fits(size, beside: own.bytes, limit: limits.maximumBytesPerIdentity) else {
            throw TransferError(
                .quota,
                """
                with \(size) more bytes this client's unfinished files would exceed the server's limit of \
                \(limits.maximumBytesPerIdentity) bytes
                """
            )
        }
        guard !self.isFull(for: put) else {
            throw TransferError(.quota, "the server has as many unfinished files as allowed; try again later")
        }
    }

    /// Whether a put exceeds the limits on the unfinished files of all.
    func isFull(for put: TransferPut) -> Bool {
        let entry = self.entries[put.id]
        let others = self.entries.count - (entry == nil ? 0 : 1)
        let held = self.heldBytes &- (entry?.held ?? 0)
        return others >= self.limits.maximumFiles
            || !Self.fits(put.file.size, beside: held, limit: self.limits.maximumBytes)
    }

    private static func fits(_ size: UInt64, beside sum: UInt64, limit: UInt64) -> Bool {
        // No file is longer, on any system.
        let limit = min(limit, UInt64(Int64.max))
        return sum <= limit && size <= limit - sum
    }

    // MARK: Age

    /// Returns the files that were not worked on for longer than their lifetime.
    func expired(now: UInt64) -> [TransferID] {
        let lifetime = self.limits.lifetime
        return self.entries.values.filter { entry in
            // A clock that was set back makes nothing older.
            !entry.isLive && Duration.milliseconds(Int64(clamping: now - min(now, entry.touched))) > lifetime
        }.map { $0.record.id }
    }

    /// A description of a sum that does not match its parts; nil if there is none. For tests.
    var inconsistency: String? {
        var owners: [String: Usage] = [:]
        var held: UInt64 = 0
        for entry in self.entries.values {
            owners[entry.record.owner, default: Usage()].files += 1
            owners[entry.record.owner]?.bytes &+= entry.record.file.size
            held &+= entry.held
        }
        if owners != self.owners { return "owners: \(self.owners), not \(owners)" }
        if held != self.heldBytes { return "held: \(self.heldBytes), not \(held)" }
        return nil
    }
}
