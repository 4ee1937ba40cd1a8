// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketSystem
import HHSocketTransferValues
import NIOCore

/// A file that is fetched. Until it is complete it is next to its destination, under a hidden name that contains the
/// size and the SHA-256 of the unfinished file; a lock shows other processes that it is being fetched.
///
/// Written bytes survive the process, and are hashed again when the transfer resumes. How many of them survive a loss
/// of power depends on the file system: the hash at the end detects missing ones.
final class FileSink: TransferSink, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are accessed only by the methods, which ``FileWork``
    // calls one after the other.
    private let path: String
    private let what: String
    private let pieceLength: Int
    private let files: any TransferFiles
    private let folder: String
    private let name: String
    private var opened: Opened?
    /// The names of unfinished files that remain to be examined; nil if none are being examined.
    private var candidates: ArraySlice<String>?
    /// The unfinished file that is being hashed.
    private var candidate: Opened?

    private struct Opened {
        let file: CInt
        let path: String
        let begun: TransferFile
        var written = HashedPart()
    }

    /// The beginning of the names of unfinished files.
    static let prefix = ".hhsocket-get-"

    /// - Parameters:
    ///   - what: The transfer, for errors.
    ///   - pieceLength: The largest number of bytes that is read at once.
    init(_ path: String, what: String, pieceLength: Int, files: any TransferFiles) {
        self.path = path
        self.what = what
        self.pieceLength = pieceLength
        self.files = files
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        self.name = slash.map { String(path[path.utf8.index(after: $0)...]) } ?? path
        self.folder = slash.map { $0 == path.utf8.startIndex ? "/" : String(path[..<$0]) } ?? "."
    }

    deinit { self.close() }

    func close() {
        for opened in [self.opened.take(), self.candidate.take()] {
            if let opened { self.files.close(opened.file) }
        }
    }

    // MARK: Names

    /// The prefix of the names of unfinished files for this one, whose own name may have the maximum length.
    private var ownPrefix: String {
        var name = self.name
        let digest = name.withUTF8 { TransferDigest(of: UnsafeRawBufferPointer($0)) }
        return "\(Self.prefix)\(digest.description.prefix(32))-"
    }

    private func unfinishedPath(of file: TransferFile) -> String {
        "\(self.folder)/\(self.ownPrefix)\(file.size)-\(file.sha256)"
    }

    /// The unfinished file under this name; nil if the name is not one of these.
    private func begun(under name: String) -> TransferFile? {
        let parts = name.dropFirst(self.ownPrefix.count).split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let size = UInt64(parts[0]), let digest = TransferDigest(hexadecimal: parts[1]) else {
            return nil
        }
        return TransferFile(size: size, sha256: digest)
    }

    // MARK: What was begun before

    func prepare() throws(TransferError) -> Preparation {
        guard var rest = self.candidates else {
            try self.checkDestination()
            self.candidates = try self.unfinishedNames()[...]
            return .continues
        }
        if let candidate = self.candidate.take() {
            if let whole = try self.hash(candidate) { self.judge(whole) }
            return .continues
        }
        guard let name = rest.popFirst() else {
            self.candidates = nil
            return .done(self.opened.map { BegunFile(file: $0.begun, length: $0.written.length) })
        }
        self.candidates = rest
        self.candidate = try self.takeOver(name)
        return .continues
    }

    /// Keeps the best unfinished file. There is only one, unless a process was killed between two steps.
    private func judge(_ candidate: Opened) {
        guard candidate.written.length <= candidate.begun.size else { return self.remove(candidate) }
        if let best = self.opened, best.written.length >= candidate.written.length {
            self.remove(candidate)
        } else {
            if let worse = self.opened.take() { self.remove(worse) }
            self.opened = candidate
        }
    }

    /// Refuses a path at which no file can be.
    private func checkDestination() throws(TransferError) {
        guard !self.name.isEmpty else {
            throw TransferError(.fileFailed, "\(self.what): \"\(self.path)\" is no path of a file")
        }
        guard let status = try self.perform({ (files) throws(SystemError) in try files.status(at: self.path) }) else {
            return
        }
        guard status.kind == .regular else {
            let kind = status.kind == .folder ? "a folder" : "not a regular file, and is not replaced"
            throw TransferError(.fileFailed, "\(self.what): \(self.path) is \(kind)")
        }
    }

    private func unfinishedNames() throws(TransferError) -> [String] {
        try self.perform { (files) throws(SystemError) in try files.names(in: self.folder, prefix: self.ownPrefix) }
    }

    /// Opens and locks an unfinished file. Nil if it is not usable.
    private func takeOver(_ name: String) throws(TransferError) -> Opened? {
        let path = "\(self.folder)/\(name)"
        guard let file = try self.open(path) else { return nil }
        guard let begun = self.begun(under: name) else {
            self.files.close(file)
            try? self.files.remove(path)
            return nil
        }
        return Opened(file: file, path: path, begun: begun)
    }

    /// Opens and locks a file.
    ///
    /// - Returns: Nil if it does not exist, or is not a regular file.
    private func open(_ path: String) throws(TransferError) -> CInt? {
        let file: CInt
        do throws(SystemError) {
            file = try self.files.open(path, .writing)
        } catch  where error.isAbsence || error.isLink {
            return nil
        } catch {
            throw self.error(error)
        }
        do throws(TransferError) {
            try self.lock(file)
            let (here, there) = try self.perform { (files) throws(SystemError) in
                (try files.status(of: file), try files.status(at: path))
            }
            // The previous holder of the lock may have moved it to its destination since it was opened here.
            guard here.kind == .regular, let there, there.isSameFile(as: here) else {
                self.files.close(file)
                return nil
            }
            return file
        } catch {
            self.files.close(file)
            throw error
        }
    }

    private func lock(_ file: CInt) throws(TransferError) {
        guard try self.perform({ (files) throws(SystemError) in try files.lock(file) }) else {
            throw TransferError(
                .fileFailed,
                """
                \(self.what): \(self.path) is being fetched already, by another process or another transfer; wait for \
                it, or choose another file
                """
            )
        }
    }

    /// Hashes a part of an unfinished file.
    ///
    /// - Returns: The file, once all of it has been hashed; nil before.
    private func hash(_ candidate: Opened) throws(TransferError) -> Opened? {
        var opened = candidate
        var buffer = [UInt8](repeating: 0, count: self.pieceLength)
        let end = opened.written.length + HashedPart.step
        while opened.written.length < end {
            let count: Int
            do throws(SystemError) {
                count = try buffer.withUnsafeMutableBufferPointer { bytes throws(SystemError) in
                    let memory = UnsafeMutableRawBufferPointer(bytes)
                    return try self.files.read(opened.file, at: opened.written.length, into: memory)
                }
            } catch {
                self.files.close(opened.file)
                throw self.error(error)
            }
            // A file that is longer than the whole need not be read to its end.
            guard count > 0, opened.written.length <= opened.begun.size else { return opened }
            buffer.withUnsafeBytes { opened.written.append(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
        }
        self.candidate = opened
        return nil
    }

    // MARK: Writing

    func create(_ file: TransferFile) throws(TransferError) {
        if var opened = self.opened, opened.begun == file {
            let descriptor = opened.file
            try self.perform { (files) throws(SystemError) in try files.truncate(descriptor, to: 0) }
            opened.written = HashedPart()
            self.opened = opened
            return
        }
        if let old = self.opened.take() { self.remove(old) }
        let path = self.unfinishedPath(of: file)
        let descriptor = try self.createLocked(path)
        self.opened = Opened(file: descriptor, path: path, begun: file)
        try self.perform { (files) throws(SystemError) in
            if let old = try files.status(at: self.path) {
                try files.setPermissions(descriptor, old.permissions & 0o777)
            }
        }
    }

    /// Makes an empty file that is locked.
    private func createLocked(_ path: String) throws(TransferError) -> CInt {
        let file: CInt
        do throws(SystemError) {
            file = try self.files.open(path, .creating)
        } catch  where error.isPresence {
            // Another process has begun it since the examination, and may still hold it.
            guard let there = try self.open(path) else { throw self.error(error) }
            do throws(TransferError) {
                try self.perform { (files) throws(SystemError) in try files.truncate(there, to: 0) }
            } catch {
                self.files.close(there)
                throw error
            }
            return there
        } catch {
            throw self.error(error)
        }
        do throws(TransferError) {
            try self.lock(file)
        } catch {
            self.files.close(file)
            throw error
        }
        return file
    }

    func append(_ contents: [ByteBuffer]) throws(TransferError) -> UInt64 {
        guard var opened = self.opened else { throw self.isGone }
        defer { self.opened = opened }
        for content in contents { try self.append(content, to: &opened) }
        return opened.written.length
    }

    private func append(_ content: ByteBuffer, to opened: inout Opened) throws(TransferError) {
        try self.perform { (files) throws(SystemError) in
            try content.withUnsafeReadableBytes { bytes throws(SystemError) in
                var rest = bytes
                while rest.count > 0 {
                    let count = try files.write(opened.file, at: opened.written.length, rest)
                    opened.written.append(UnsafeRawBufferPointer(rebasing: rest[..<count]))
                    rest = UnsafeRawBufferPointer(rebasing: rest[count...])
                }
            }
        }
    }

    private var isGone: TransferError {
        TransferError(.fileFailed, "\(self.what): nothing was begun beside \(self.path)")
    }

    func finish() throws(TransferError) -> Bool {
        guard let opened = self.opened else { throw self.isGone }
        guard opened.written.length == opened.begun.size, TransferDigest(opened.written.hash) == opened.begun.sha256
        else {
            return false
        }
        try self.perform { (files) throws(SystemError) in try files.synchronize(opened.file) }
        // The system does not replace a folder that has appeared there meanwhile.
        try self.perform { (files) throws(SystemError) in try files.rename(opened.path, to: self.path) }
        self.close()
        try self.perform { (files) throws(SystemError) in
            let folder = try files.open(self.folder, .folder)
            defer { files.close(folder) }
            do throws(SystemError) {
                try files.synchronize(folder)
            } catch  where error.isUnsupported {
                // This file system cannot synchronize folders.
            }
        }
        return true
    }

    func discard() {
        if let opened = self.opened.take() { self.remove(opened) }
        self.close()
    }

    /// Removes a file before its lock is released, so that a file that another process locks under that name is not
    /// removed.
    private func remove(_ opened: Opened) {
        try? self.files.remove(opened.path)
        self.files.close(opened.file)
    }

    // MARK: Errors

    private func perform<Value>(
        _ body: (any TransferFiles) throws(SystemError) -> Value
    ) throws(TransferError) -> Value {
        do throws(SystemError) {
            return try body(self.files)
        } catch {
            throw self.error(error)
        }
    }

    private func error(_ failure: SystemError) -> TransferError {
        TransferError(failure.at(self.opened?.path ?? self.path), of: self.what, writes: true)
    }
}
