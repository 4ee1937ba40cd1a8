// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketServer
import HHSocketSystem
import HHSocketTesting
import HHSocketTransferValues
import NIOConcurrencyHelpers
import TestSupport

@testable import HHSocketServerTransfers

/// Files in memory, with the faults of file systems: full disks, short writes, crashes between two calls, and power
/// cuts that lose what was not synchronized.
///
/// A power cut leaves the names as they were after some call since a folder was last synchronized, as a journal does.
/// Synchronized content of a file stays; any part of the rest may become zeros.
final class MemoryFileSystem: StoreFileSystem {
    struct Node {
        enum Kind { case file, folder, link, pipe }

        var kind: Kind
        var bytes: [UInt8] = []
        /// The content at the last synchronization.
        var durable: [UInt8] = []
        var modified: Int64
        var changed: Int64
    }

    /// The entries of each folder.
    typealias Names = [UInt64: [String: UInt64]]

    struct State {
        var nodes: [UInt64: Node] = [:]
        var names: Names = [:]
        /// The names that a power cut may leave, the current ones last.
        var possibleNames: [Names] = []
        var lastInode: UInt64 = 1
        var descriptors: [CInt: (inode: UInt64, isWritable: Bool)] = [:]
        var locks: [UInt64: CInt] = [:]
        var lastDescriptor: CInt = 100
        /// The time in milliseconds.
        var now: UInt64 = 1_800_000_000_000

        // Faults.
        var ignoresCase = false
        var isReadOnly = false
        /// The capacity for the bytes of all files.
        var capacity = Int.max
        /// The greatest number of bytes that one call writes.
        var longestWrite = Int.max
        /// The number of calls that change the file system.
        var steps = 0
        /// After this step all calls fail, as if the process had died.
        var lastStep = Int.max
        /// Decides on a failure of a call, by its function and the file's name.
        var fault: (@Sendable (String, String) -> CInt?)?
    }

    static let rootInode: UInt64 = 1
    let state: NIOLockedValueBox<State>

    init() {
        var state = State()
        state.nodes[Self.rootInode] = Node(kind: .folder, modified: 0, changed: 0)
        state.names[Self.rootInode] = [:]
        state.possibleNames = [state.names]
        self.state = NIOLockedValueBox(state)
    }

    // MARK: For tests

    func set(_ change: (inout State) -> Void) { self.state.withLockedValue { change(&$0) } }

    var steps: Int { self.state.withLockedValue { $0.steps } }

    func advance(by time: Duration) {
        self.set { $0.now += UInt64(time / .milliseconds(1)) }
    }

    /// Simulates the end of the process, and the start of another one.
    func restart() {
        self.set { state in
            state.descriptors = [:]
            state.locks = [:]
            state.lastStep = .max
            state.steps = 0
        }
    }

    func cutPower(_ random: inout SeededGenerator) {
        self.restart()
        self.state.withLockedValue { state in
            state.names = state.possibleNames.randomElement(using: &random) ?? [:]
            state.possibleNames = [state.names]
            for (inode, node) in state.nodes where node.kind == .file && node.bytes != node.durable {
                var bytes = node.bytes
                // The length may be the old one, the new one, or any between.
                let shorter = min(node.durable.count, bytes.count)
                bytes = Array(bytes.prefix(Int.random(in: shorter...bytes.count, using: &random)))
                if Bool.random(using: &random), bytes.count > node.durable.count {
                    let start = Int.random(in: node.durable.count..<bytes.count, using: &random)
                    for index in start..<bytes.count { bytes[index] = 0 }
                }
                state.nodes[inode]?.bytes = bytes
                state.nodes[inode]?.durable = bytes
            }
        }
    }

    /// The names in the folder, or in one of its folders.
    func names(in folder: String? = nil) -> Set<String> {
        self.state.withLockedValue { state in
            var names = state.names[Self.rootInode] ?? [:]
            if let folder { names = names[folder].flatMap { state.names[$0] } ?? [:] }
            return Set(names.keys)
        }
    }

    func contents(of name: String, in folder: String? = nil) -> [UInt8]? {
        self.state.withLockedValue { state in
            var inode: UInt64? = Self.rootInode
            if let folder { inode = state.names[Self.rootInode]?[folder] }
            return inode.flatMap { state.names[$0]?[name] }.flatMap { state.nodes[$0]?.bytes }
        }
    }

    /// Creates or changes a file directly.
    func add(_ name: String, _ bytes: [UInt8], kind: Node.Kind = .file, in folder: String? = nil) {
        self.set { state in
            var parent = Self.rootInode
            if let folder {
                parent = state.names[Self.rootInode]?[folder] ?? Self.make(folder, .folder, in: parent, &state)
            }
            let inode = state.names[parent]?[name] ?? Self.make(name, kind, in: parent, &state)
            state.nodes[inode]?.bytes = bytes
            state.nodes[inode]?.durable = bytes
            Self.touch(inode, &state)
        }
    }

    func delete(_ name: String, in folder: String? = nil) {
        self.set { state in
            let parent = folder.flatMap { state.names[Self.rootInode]?[$0] } ?? Self.rootInode
            state.names[parent]?[name] = nil
            state.possibleNames.append(state.names)
        }
    }

    var writableDescriptorCount: Int {
        self.state.withLockedValue { state in state.descriptors.values.count { $0.isWritable } }
    }

    /// Waits until nothing is open. The thread that has just read may hold the last reference to a reader.
    func areClosed(fileID: String = #fileID, line: Int = #line) async throws {
        try await eventually("files are closed", fileID: fileID, line: line) { self.descriptorCount == 0 }
    }

    var descriptorCount: Int { self.state.withLockedValue { $0.descriptors.count } }

    // MARK: Inside

    private static func make(_ name: String, _ kind: Node.Kind, in folder: UInt64, _ state: inout State) -> UInt64 {
        state.lastInode += 1
        let inode = state.lastInode
        let now = Int64(state.now) * 1_000_000
        state.nodes[inode] = Node(kind: kind, modified: now, changed: now)
        if kind == .folder { state.names[inode] = [:] }
        state.names[folder]?[name] = inode
        state.possibleNames.append(state.names)
        return inode
    }

    private static func touch(_ inode: UInt64, _ state: inout State) {
        let now = Int64(state.now) * 1_000_000
        // Simulates a clock that advances between two changes.
        let last = state.nodes[inode]?.changed ?? 0
        state.nodes[inode]?.modified = max(now, last + 1)
        state.nodes[inode]?.changed = max(now, last + 1)
    }

    private static func find(_ name: String, in folder: UInt64, _ state: State) -> (name: String, inode: UInt64)? {
        guard let entries = state.names[folder] else { return nil }
        if let inode = entries[name] { return (name, inode) }
        guard state.ignoresCase else { return nil }
        return entries.first { $0.key.lowercased() == name.lowercased() }.map { ($0.key, $0.value) }
    }

    private func call<Result>(
        _ function: String,
        _ name: String = "",
        changes: Bool = false,
        _ body: (inout State) throws(SystemError) -> Result
    ) throws(SystemError) -> Result {
        var outcome = Swift.Result<Result, SystemError>.failure(SystemError(function, EIO))
        self.state.withLockedValue { state in
            if changes { state.steps += 1 }
            do throws(SystemError) {
                if state.steps > state.lastStep { throw SystemError("\(function): dead", EIO) }
                if let code = state.fault?(function, name) { throw SystemError(function, code) }
                if changes, state.isReadOnly { throw SystemError(function, EROFS) }
                outcome = .success(try body(&state))
            } catch {
                outcome = .failure(error)
            }
        }
        return try outcome.get()
    }

    private static func inode(_ descriptor: CInt, _ state: State) throws(SystemError) -> UInt64 {
        guard let inode = state.descriptors[descriptor]?.inode else { throw SystemError("descriptor", EBADF) }
        return inode
    }

    private static func open(_ inode: UInt64, isWritable: Bool, _ state: inout State) -> CInt {
        state.lastDescriptor += 1
        state.descriptors[state.lastDescriptor] = (inode, isWritable)
        return state.lastDescriptor
    }

    // MARK: StoreFileSystem

    func makeFolder(path: String) throws(SystemError) { throw SystemError("makeFolder", ENOENT) }

    func openFolder(path: String) throws(SystemError) -> Descriptor {
        try self.call("openFolder", path) { state in Self.open(Self.rootInode, isWritable: false, &state) }
    }

    func makeFolder(_ name: String, in folder: Descriptor) throws(SystemError) {
        try self.call("makeFolder", name, changes: true) { state throws(SystemError) in
            let folder = try Self.inode(folder, state)
            guard Self.find(name, in: folder, state) == nil else { throw SystemError("makeFolder", EEXIST) }
            _ = Self.make(name, .folder, in: folder, &state)
        }
    }

    func openFolder(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try self.call("openFolder", name) { state throws(SystemError) in
            guard let found = Self.find(name, in: try Self.inode(folder, state), state) else {
                throw SystemError("openFolder", ENOENT)
            }
            guard state.nodes[found.inode]?.kind == .folder else { throw SystemError("openFolder", ENOTDIR) }
            return Self.open(found.inode, isWritable: false, &state)
        }
    }

    func openForReading(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try self.openFile("openForReading", name, in: folder, isWritable: false)
    }

    func openForWriting(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        if self.state.withLockedValue({ $0.isReadOnly }) { throw SystemError("openForWriting", EROFS) }
        return try self.openFile("openForWriting", name, in: folder, isWritable: true)
    }

    private func openFile(
        _ function: String,
        _ name: String,
        in folder: Descriptor,
        isWritable: Bool
    ) throws(SystemError) -> Descriptor {
        try self.call(function, name) { state throws(SystemError) in
            guard let found = Self.find(name, in: try Self.inode(folder, state), state) else {
                throw SystemError(function, ENOENT)
            }
            if state.nodes[found.inode]?.kind == .link { throw SystemError(function, ELOOP) }
            return Self.open(found.inode, isWritable: isWritable, &state)
        }
    }

    func create(_ name: String, in folder: Descriptor) throws(SystemError) -> Descriptor {
        try self.call("create", name, changes: true) { state throws(SystemError) in
            let folder = try Self.inode(folder, state)
            guard Self.find(name, in: folder, state) == nil else { throw SystemError("create", EEXIST) }
            return Self.open(Self.make(name, .file, in: folder, &state), isWritable: true, &state)
        }
    }

    func close(_ descriptor: Descriptor) {
        self.state.withLockedValue { state in
            guard let closed = state.descriptors.removeValue(forKey: descriptor) else { return }
            if state.locks[closed.inode] == descriptor { state.locks[closed.inode] = nil }
        }
    }

    func status(_ descriptor: Descriptor) throws(SystemError) -> FileStatus {
        try self.call("status") { state throws(SystemError) in
            Self.status(of: try Self.inode(descriptor, state), state)
        }
    }

    func status(of name: String, in folder: Descriptor) throws(SystemError) -> FileStatus {
        try self.call("status", name) { state throws(SystemError) in
            guard let found = Self.find(name, in: try Self.inode(folder, state), state) else {
                throw SystemError("status", ENOENT)
            }
            return Self.status(of: found.inode, state)
        }
    }

    private static func status(of inode: UInt64, _ state: State) -> FileStatus {
        guard let node = state.nodes[inode] else { preconditionFailure("no such file") }
        let kind: FileStatus.Kind =
            switch node.kind {
            case .file: .regular
            case .folder: .folder
            case .link, .pipe: .other
            }
        return FileStatus(
            kind: kind,
            size: UInt64(node.bytes.count),
            modified: node.modified,
            changed: node.changed,
            inode: inode
        )
    }

    func read(
        _ descriptor: Descriptor,
        into memory: UnsafeMutableRawBufferPointer,
        at offset: UInt64
    ) throws(SystemError) -> Int {
        let bytes = try self.call("read") { state throws(SystemError) in
            let bytes = state.nodes[try Self.inode(descriptor, state)]?.bytes ?? []
            return Array(bytes.dropFirst(Int(offset)).prefix(memory.count))
        }
        memory.copyBytes(from: bytes)
        return bytes.count
    }

    func write(_ descriptor: Descriptor, _ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws(SystemError) -> Int
    {
        let copy = Array(bytes)
        return try self.call("write", changes: true) { state throws(SystemError) in
            let inode = try Self.inode(descriptor, state)
            guard state.descriptors[descriptor]?.isWritable == true else { throw SystemError("write", EBADF) }
            var new = Array(copy.prefix(state.longestWrite))
            var old = state.nodes[inode]?.bytes ?? []
            let used = Self.used(state) - old.count
            let room = state.capacity == .max ? Int.max : state.capacity - used - Int(offset)
            if room <= 0, !new.isEmpty { throw SystemError("write", ENOSPC) }
            new = Array(new.prefix(room))
            state.nodes[inode]?.bytes = []
            if old.count < Int(offset) { old += [UInt8](repeating: 0, count: Int(offset) - old.count) }
            old.replaceSubrange(Int(offset)..<min(old.count, Int(offset) + new.count), with: new)
            state.nodes[inode]?.bytes = old
            Self.touch(inode, &state)
            return new.count
        }
    }

    /// The bytes of all files that have a name or are open.
    private static func used(_ state: State) -> Int {
        let named = state.names.values.flatMap(\.values)
        return Set(named + state.descriptors.values.map(\.inode)).reduce(0) { $0 + (state.nodes[$1]?.bytes.count ?? 0) }
    }

    func synchronize(_ descriptor: Descriptor) throws(SystemError) {
        try self.call("synchronize", changes: true) { state throws(SystemError) in
            let inode = try Self.inode(descriptor, state)
            if state.nodes[inode]?.kind == .folder {
                state.possibleNames = [state.names]
            } else {
                let bytes = state.nodes[inode]?.bytes ?? []
                state.nodes[inode]?.durable = bytes
            }
        }
    }

    /// The content that is there survives a power cut from now on, as on Linux.
    func flush(_ descriptor: Descriptor) {
        self.set { state in
            guard let inode = state.descriptors[descriptor]?.inode else { return }
            let bytes = state.nodes[inode]?.bytes ?? []
            state.nodes[inode]?.durable = bytes
        }
    }

    func lock(_ descriptor: Descriptor) -> Bool {
        self.state.withLockedValue { state in
            guard let inode = state.descriptors[descriptor]?.inode, state.locks[inode] == nil else { return false }
            state.locks[inode] = descriptor
            return true
        }
    }

    func rename(_ name: String, in folder: Descriptor, to newName: String, in newFolder: Descriptor) throws(SystemError)
    {
        try self.call("rename", newName, changes: true) { state throws(SystemError) in
            let (folder, newFolder) = (try Self.inode(folder, state), try Self.inode(newFolder, state))
            guard let found = Self.find(name, in: folder, state) else { throw SystemError("rename", ENOENT) }
            let old = Self.find(newName, in: newFolder, state)
            if let old, state.nodes[old.inode]?.kind == .folder { throw SystemError("rename", EISDIR) }
            state.names[folder]?[found.name] = nil
            state.names[newFolder]?[old?.name ?? newName] = found.inode
            state.nodes[found.inode]?.changed += 1
            state.possibleNames.append(state.names)
        }
    }

    func remove(_ name: String, in folder: Descriptor) throws(SystemError) {
        try self.call("remove", name, changes: true) { state throws(SystemError) in
            let folder = try Self.inode(folder, state)
            guard let found = Self.find(name, in: folder, state) else { throw SystemError("remove", ENOENT) }
            if state.nodes[found.inode]?.kind == .folder { throw SystemError("remove", EISDIR) }
            state.names[folder]?[found.name] = nil
            state.possibleNames.append(state.names)
        }
    }

    func forEachName(in folder: Descriptor, _ body: (String) -> Bool) throws(SystemError) {
        let names = try self.call("forEachName") { state throws(SystemError) in
            Array((state.names[try Self.inode(folder, state)] ?? [:]).keys)
        }
        for name in names where !body(name) { return }
    }

    func now() -> UInt64 { self.state.withLockedValue { $0.now } }
}
