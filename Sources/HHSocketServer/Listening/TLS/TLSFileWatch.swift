// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOConcurrencyHelpers
import NIOPosix

/// The identity and the state of a file, which distinguish it from a later file at its path. Links are followed: a
/// secret of Kubernetes changes by one.
struct FileVersion: Hashable, Sendable {
    private var device: UInt64
    private var inode: UInt64
    private var size: UInt64
    private var modified: Int64

    /// Fails if there is no such file.
    init?(path: String) {
        var information = stat()
        guard stat(path, &information) == 0 else { return nil }
        let status = FileStatus(information)
        (self.device, self.inode) = (status.device, status.inode)
        (self.size, self.modified) = (status.size, status.modified)
    }
}

/// The versions of the files when they were last checked.
struct FileVersions: Hashable, Sendable {
    private var versions: [String: FileVersion?] = [:]

    init(of files: some Sequence<String>) {
        for file in files { self.versions[file] = .some(FileVersion(path: file)) }
    }

    /// Checks again. Returns whether any file has changed, appeared or disappeared since the last check.
    mutating func haveChanged() -> Bool {
        let now = FileVersions(of: self.versions.keys)
        defer { self = now }
        return now != self
    }
}

/// Checks files periodically, on a separate thread, and reports when one has changed.
final class TLSFileWatch: Sendable {
    /// The shortest time between two checks.
    static let shortestInterval = Duration.seconds(1)

    private struct State {
        var versions: FileVersions
        var interval: Double
    }

    private let threads = NIOThreadPool(numberOfThreads: 1)
    private let isOver = ConditionLock(value: false)
    private let state: NIOLockedValueBox<State>

    /// - Parameter changed: Called on the watch's thread, until ``end()``.
    init(_ files: [String], every interval: Duration, changed: @escaping @Sendable () -> Void) {
        self.state = NIOLockedValueBox(State(versions: FileVersions(of: files), interval: Self.seconds(interval)))
        self.threads.start()
        self.threads.submit { [isOver, state] _ in
            while !isOver.lock(whenValue: true, timeoutSeconds: state.withLockedValue { $0.interval }) {
                if state.withLockedValue({ $0.versions.haveChanged() }) { changed() }
            }
            isOver.unlock()
        }
    }

    /// Watches these files from now on.
    func watch(_ files: [String], every interval: Duration) {
        let versions = FileVersions(of: files)
        self.state.withLockedValue { state in
            // A change during the read is found by the next check.
            if !state.versions.areOfSameFiles(as: versions) { state.versions = versions }
            state.interval = Self.seconds(interval)
        }
    }

    private static func seconds(_ interval: Duration) -> Double {
        let interval = max(interval, self.shortestInterval).components
        return Double(interval.seconds) + Double(interval.attoseconds) * 1e-18
    }

    func end() {
        self.isOver.lock()
        self.isOver.unlock(withValue: true)
        self.threads.shutdownGracefully { _ in }
    }
}

extension FileVersions {
    func areOfSameFiles(as other: FileVersions) -> Bool { self.versions.keys == other.versions.keys }
}
