// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
public import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore

/// The client for which a task uses a store.
enum StoreOwner {
    /// The client for which the store's threads work in this task: otherwise one that asks for many files would
    /// have as many shares of them.
    @TaskLocal static var current: UInt64?
    /// The client's account, for which the files are counted that stay open; nil: the application uses the store.
    @TaskLocal static var account: (any LinkAccount)?
}

/// The files of transfers in a folder: the file of an id is `FOLDER/ID`.
///
/// ```swift
/// let store = try FolderTransferStore(path: "/srv/photographs")
/// router.register(TransferService(store: store) { request, context in
///     guard context.session.identity != nil else { throw TransferError(.denied, "sign in first") }
/// })
/// ```
///
/// A file becomes visible there in one step, when it is complete, has the announced hash, and is on the disk; readers
/// of a file that is replaced read the old content to its end, or begin again if the process has few file descriptors.
/// Files that other programs put into the folder are served as well; move them there rather than write them in place.
/// Links, pipes and folders are not served; a put replaces a link or a pipe of its name, and fails if the name is a
/// folder's.
///
/// The store keeps its own files in folders whose names are not ids: `+unfinished` has the unfinished files, within
/// ``TransferLimits``, and `+hashes` the hashes of complete files. A damaged file in either is discarded. A put that
/// finds the disk full is removed immediately. If the folder cannot be written, files are served, unfinished ones are
/// kept, and puts fail with the code `readOnly`; no restart is needed when it becomes writable again. On a file system
/// that does not distinguish upper and lower case, an id is refused that differs from an existing one only in case.
///
/// A second process may use the same folder, for example during an update: only one of them writes an unfinished file.
/// Files are read and written in pieces, by the store's own threads.
public final class FolderTransferStore: TransferStore {
    struct State {
        var ledger: UnfinishedLedger
        var live: [TransferID: LivePut] = [:]
        /// The hashes of complete files.
        var hashes: [TransferID: KnownHash] = [:]
        /// Hashes that are not complete.
        var partial: [PartialName: (key: FileKey, hash: PartialHash)] = [:]
    }

    struct KnownHash {
        var record: HashRecord
        /// Whether the file is known to survive a power failure.
        var isDurable: Bool
    }

    /// Files whose hash is not complete.
    enum PartialName: Hashable {
        case whole(TransferID)
        case unfinished(TransferID)
    }

    /// The number of hashes in memory.
    static let maximumHashes = 4_096
    static let maximumPartialHashes = 64
    /// The number of bytes that are hashed in a turn.
    static let hashLimit: UInt64 = 8 << 20
    /// The number of threads: operations that wait for the disk should not delay those that do not.
    static let threadCount = 4

    /// The length of received content from which most of it survives a power failure, which would cost hours otherwise:
    /// each time that so much has arrived, the disk is asked to write it, with its record. Less is sent again in the
    /// time that the disk would take.
    static let durableLength: UInt64 = 64 << 20

    /// The folder's absolute path.
    package let path: String
    let fileSystem: any StoreFileSystem
    let openFiles: OpenFiles
    let durableLength: UInt64
    let threads = BlockingThreads(count: FolderTransferStore.threadCount)
    private let locks = KeyedLock<TransferID>()
    let state: NIOLockedValueBox<State>
    private let sweeper = NIOLockedValueBox<Task<Void, Never>?>(nil)

    /// Opens a store. Reads the folder, so it is not for an event loop.
    ///
    /// - Parameters:
    ///   - path: The folder. It is made if its parent exists.
    ///   - limits: The bounds of unfinished files.
    /// - Throws: ``/HHSocketTransfers/TransferError`` with the code `storeFailed` if it cannot be made or read, or is
    ///   no folder.
    public convenience init(path: String, limits: TransferLimits = TransferLimits()) throws(TransferError) {
        try self.init(path: Self.absolute(path), limits: limits, PosixFileSystem(), openFiles: .shared)
        self.startSweeping()
    }

    init(
        path: String,
        limits: TransferLimits = TransferLimits(),
        _ fileSystem: any StoreFileSystem,
        openFiles: OpenFiles = OpenFiles { 1_024 },
        durableLength: UInt64 = FolderTransferStore.durableLength
    ) throws(TransferError) {
        self.path = path
        self.durableLength = durableLength
        self.openFiles = openFiles
        self.fileSystem = fileSystem
        self.state = NIOLockedValueBox(State(ledger: UnfinishedLedger(limits: limits)))
        do {
            try self.prepare()
        } catch {
            throw TransferError(.storeFailed, "the folder \(path) cannot be a store of transfers: \(error)")
        }
    }

    deinit {
        self.sweeper.withLockedValue { $0 }?.cancel()
        self.threads.shutdown()
    }

    private static func absolute(_ path: String) -> String {
        guard !path.isEmpty, !path.hasPrefix("/"), let current = getcwd(nil, 0) else { return path }
        defer { free(current) }
        return "\(String(cString: current))/\(path)"
    }

    private func prepare() throws {
        do throws(SystemError) {
            self.fileSystem.close(try self.fileSystem.openFolder(path: self.path))
        } catch {
            guard error.isAbsence else { throw error }
            try self.fileSystem.makeFolder(path: self.path)
        }
        // A file that cannot be read or removed now does not prevent the store from serving files.
        for id in try self.unfinishedIDs() { try? self.tidy(id) }
    }

    /// Removes unfinished files that are too old, once an hour, for the lifetime of the store.
    private func startSweeping() {
        let task = Task { [weak self] in
            while !Task.isCancelled {
                try? await Task.sleep(for: .seconds(3_600))
                guard !Task.isCancelled, let self else { return }
                await self.sweep()
            }
        }
        self.sweeper.withLockedValue { $0 = task }
    }

    // MARK: Threads and turns

    /// Runs `body` on a thread, whether or not the task is cancelled.
    func onThread<Result: Sendable>(
        of id: TransferID,
        _ body: @escaping @Sendable () throws -> Result
    ) async throws -> Result {
        // The lock orders what the thread has done before what the task does: the sanitizer does not see that the
        // continuation does so.
        let order = ThreadSanitizer.isRunning ? NIOLock() : nil
        let result = try await withCheckedThrowingContinuation { continuation in
            self.threads.submit(for: Self.owner(id)) {
                let result = Swift.Result { try Self.translatingErrors(body) }
                order?.withLock {}
                continuation.resume(with: result)
            }
        }
        order?.withLock {}
        return result
    }

    /// Runs `body` on a thread, when no other operation on this id is running.
    func exclusively<Result: Sendable>(
        for id: TransferID,
        _ body: @escaping @Sendable () throws -> Result
    ) async throws -> Result {
        await self.locks.lock(id)
        defer { self.locks.unlock(id) }
        return try await self.onThread(of: id, body)
    }

    /// Runs `body` where the caller runs, which may block, when nothing else is done with this id.
    func exclusivelyHere<Result>(for id: TransferID, _ body: () throws -> Result) async throws -> Result {
        await self.locks.lock(id)
        defer { self.locks.unlock(id) }
        return try Self.translatingErrors(body)
    }

    /// The threads, for a task that works on the file of an id.
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    func executor(of id: TransferID) -> StoreExecutor { StoreExecutor(self.threads, owner: Self.owner(id)) }

    /// Lets others have the thread of a task that runs on one, if they wait.
    func giveWay() async {
        if self.threads.waitingCount > 0 { await Task.yield() }
    }

    /// For whom work on the file of an id is done: the client's, or the id's if no service has said whose it is.
    private static func owner(_ id: TransferID) -> UInt64 {
        StoreOwner.current ?? UInt64(bitPattern: Int64(id.hashValue))
    }

    /// Runs `body`, and throws errors of the system as the errors that clients receive.
    private static func translatingErrors<Result>(_ body: () throws -> Result) throws -> Result {
        do {
            return try body()
        } catch let error as SystemError {
            throw error.asTransferError
        }
    }

    /// Runs `body` on a thread later, in the turn of the client that sends the file of an id.
    func inBackground(of id: TransferID, _ body: @escaping @Sendable () -> Void) {
        self.threads.submit(for: Self.owner(id), body)
    }

    // MARK: Folders

    func withRoot<Result>(_ body: (CInt) throws -> Result) throws -> Result {
        let root = try self.fileSystem.openFolder(path: self.path)
        defer { self.fileSystem.close(root) }
        return try body(root)
    }

    /// - Parameter makes: Whether the folder is created if it does not exist; otherwise the result is nil.
    func withFolder<Result>(
        _ name: String,
        in root: CInt,
        makes: Bool,
        _ body: (CInt) throws -> Result
    ) throws -> Result? {
        let folder: CInt
        do throws(SystemError) {
            folder = try self.fileSystem.openFolder(name, in: root)
        } catch {
            guard error.isAbsence else { throw error }
            guard makes else { return nil }
            do throws(SystemError) {
                try self.fileSystem.makeFolder(name, in: root)
            } catch {
                if error.code != EEXIST { throw error }
            }
            folder = try self.fileSystem.openFolder(name, in: root)
        }
        defer { self.fileSystem.close(folder) }
        return try body(folder)
    }
}
