// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketSystem
import NIOCore

/// A file, pipe or terminal that a command reads: everything that is read on the command line passes through here.
final class Input: Sendable {
    /// The reason why an input cannot be read to its end. Never the end itself.
    struct Failure: Error, Hashable, CustomStringConvertible {
        /// The name of the input.
        var input: String
        var reason: String

        var description: String { "Cannot read \(self.input): \(self.reason)" }

        fileprivate init(_ input: String, errno number: CInt) {
            self.input = input
            self.reason = String(cString: strerror(number))
        }

        init(_ input: String, _ reason: String) {
            self.input = input
            self.reason = reason
        }
    }

    /// Whether an input is a file that can be opened again by its name, with the same content.
    enum Kind {
        case regularFile, other
    }

    /// The number of bytes that are read at once.
    static let step = 64 << 10

    static let standard = Input(STDIN_FILENO, "stdin")

    /// The name of the input, for errors.
    let name: String
    private let descriptor: CInt

    /// - Parameter descriptor: An open descriptor, which is closed with the object.
    init(_ descriptor: CInt, _ name: String) {
        self.descriptor = descriptor
        self.name = name
    }

    /// Opens a file of any kind, such as a pipe; `-` is standard input.
    static func open(_ file: String) throws(Failure) -> Input {
        guard file != "-" else { return .standard }
        return try self.open(path: file)
    }

    /// Opens a file of any kind, also if it is called `-`.
    static func open(path: String) throws(Failure) -> Input {
        while true {
            let descriptor = HHSocketSystem.open(path, O_RDONLY | O_CLOEXEC)
            if descriptor >= 0 { return Input(descriptor, path) }
            guard errno == EINTR else { throw Failure(path, errno: errno) }
        }
    }

    /// Returns the whole content of a file of any kind; `-` is standard input.
    ///
    /// - Parameter limit: The largest length in bytes, of which one more is read at most.
    static func content(of file: String, limit: Int) throws(Failure) -> ByteBuffer {
        try self.open(file).rest(limit: limit)
    }

    deinit {
        if self.descriptor != STDIN_FILENO { close(self.descriptor) }
    }

    var kind: Kind {
        var status = stat()
        guard fstat(self.descriptor, &status) == 0 else { return .other }
        return status.st_mode & S_IFMT == S_IFREG ? .regularFile : .other
    }

    /// Reads what there is, and waits if there is nothing, even if another process has made the input nonblocking: that
    /// is a property of an open file, which processes share.
    ///
    /// - Returns: The number of bytes; 0 at the end.
    func read(into memory: UnsafeMutableRawBufferPointer) throws(Failure) -> Int {
        guard let start = memory.baseAddress, !memory.isEmpty else { return 0 }
        while true {
            let count = HHSocketSystem.read(self.descriptor, start, memory.count)
            if count >= 0 { return count }
            switch errno {
            case EINTR: continue
            case EAGAIN, EWOULDBLOCK:
                var waiting = pollfd(fd: self.descriptor, events: Int16(POLLIN), revents: 0)
                _ = poll(&waiting, 1, -1)
            default: throw Failure(self.name, errno: errno)
            }
        }
    }

    /// Reads a piece to the end of `buffer`.
    ///
    /// - Returns: Whether there was one: false at the end.
    func append(to buffer: inout ByteBuffer, atMost length: Int = Input.step) throws(Failure) -> Bool {
        var result = Result<Int, Failure>.success(0)
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: length) { memory in
            result = Result { () throws(Failure) in
                try self.read(into: UnsafeMutableRawBufferPointer(rebasing: memory[..<length]))
            }
            return (try? result.get()) ?? 0
        }
        return try result.get() > 0
    }

    /// Reads to the end.
    ///
    /// - Parameter limit: The largest length in bytes, of which one more is read at most.
    func rest(limit: Int) throws(Failure) -> ByteBuffer {
        var content = ByteBuffer()
        while try self.append(to: &content, atMost: min(Input.step, limit + 1 - content.readableBytes)) {
            guard content.readableBytes <= limit else {
                throw Failure(self.name, "it is larger than \(limit) bytes, the limit")
            }
        }
        return content
    }
}
