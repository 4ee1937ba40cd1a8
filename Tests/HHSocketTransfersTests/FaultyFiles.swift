// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketRPC
import HHSocketSystem
import HHSocketTransferValues
import NIOConcurrencyHelpers

@testable import HHSocketTransfers

/// The system's files, with faults that a test requests.
final class FaultyFiles: TransferFiles {
    enum Call: Hashable, Sendable {
        case open, statusOfFile, statusAtPath, read, write, truncate, permissions, synchronize, lock, rename, remove,
            names
    }

    /// A fault: the number of calls that succeed before, and its effect.
    struct Fault: Sendable {
        var after = 0
        /// The system's error number; nil for no failure.
        var error: CInt?
        /// Called before the call, instead of an error.
        var instead: (@Sendable () -> Void)?
    }

    private struct State {
        var faults: [Call: Fault] = [:]
        var counts: [Call: Int] = [:]
        var openFiles: Set<CInt> = []
        /// The greatest number of bytes that a call reads or writes; nil for all.
        var shortest: Int?
    }

    private let system = SystemFiles()
    private let state = NIOLockedValueBox(State())

    /// Makes a call fail, from then on.
    func fail(_ call: Call, after count: Int = 0, with error: CInt) {
        self.state.withLockedValue { $0.faults[call] = Fault(after: count, error: error) }
    }

    /// Runs `body` before a call, once.
    func before(_ call: Call, after count: Int = 0, _ body: @escaping @Sendable () -> Void) {
        self.state.withLockedValue { $0.faults[call] = Fault(after: count, instead: body) }
    }

    func heal() { self.state.withLockedValue { $0.faults = [:] } }

    /// Limits the bytes that each call reads or writes.
    func shorten(to bytes: Int) { self.state.withLockedValue { $0.shortest = bytes } }

    func count(_ call: Call) -> Int { self.state.withLockedValue { $0.counts[call] ?? 0 } }

    /// The number of open files.
    var openCount: Int { self.state.withLockedValue { $0.openFiles.count } }

    private func enter(_ call: Call, _ path: String = "") throws(SystemError) {
        let fault = self.state.withLockedValue { state -> Fault? in
            state.counts[call, default: 0] += 1
            guard var fault = state.faults[call] else { return nil }
            guard fault.after == 0 else {
                fault.after -= 1
                state.faults[call] = fault
                return nil
            }
            if fault.instead != nil { state.faults[call] = nil }
            return fault
        }
        fault?.instead?()
        if let error = fault?.error { throw SystemError("\(call)", error, of: path.isEmpty ? nil : path) }
    }

    func open(_ path: String, _ access: FileAccess) throws(SystemError) -> CInt {
        try self.enter(.open, path)
        let file = try self.system.open(path, access)
        self.state.withLockedValue { _ = $0.openFiles.insert(file) }
        return file
    }

    func close(_ file: CInt) {
        self.state.withLockedValue { _ = $0.openFiles.remove(file) }
        self.system.close(file)
    }

    func status(of file: CInt) throws(SystemError) -> FileStatus {
        try self.enter(.statusOfFile)
        return try self.system.status(of: file)
    }

    func status(at path: String) throws(SystemError) -> FileStatus? {
        try self.enter(.statusAtPath, path)
        return try self.system.status(at: path)
    }

    func read(_ file: CInt, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try self.enter(.read)
        let count = min(buffer.count, self.state.withLockedValue { $0.shortest } ?? .max)
        return try self.system.read(file, at: offset, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<count]))
    }

    func write(_ file: CInt, at offset: UInt64, _ bytes: UnsafeRawBufferPointer) throws(SystemError) -> Int {
        try self.enter(.write)
        let count = min(bytes.count, self.state.withLockedValue { $0.shortest } ?? .max)
        return try self.system.write(file, at: offset, UnsafeRawBufferPointer(rebasing: bytes[..<count]))
    }

    func truncate(_ file: CInt, to length: UInt64) throws(SystemError) {
        try self.enter(.truncate)
        try self.system.truncate(file, to: length)
    }

    func setPermissions(_ file: CInt, _ permissions: UInt16) throws(SystemError) {
        try self.enter(.permissions)
        try self.system.setPermissions(file, permissions)
    }

    func synchronize(_ file: CInt) throws(SystemError) {
        try self.enter(.synchronize)
        try self.system.synchronize(file)
    }

    func lock(_ file: CInt) throws(SystemError) -> Bool {
        try self.enter(.lock)
        return try self.system.lock(file)
    }

    func rename(_ path: String, to newPath: String) throws(SystemError) {
        try self.enter(.rename, path)
        try self.system.rename(path, to: newPath)
    }

    func remove(_ path: String) throws(SystemError) {
        try self.enter(.remove, path)
        try self.system.remove(path)
    }

    func names(in folder: String, prefix: String) throws(SystemError) -> [String] {
        try self.enter(.names, folder)
        return try self.system.names(in: folder, prefix: prefix)
    }
}
