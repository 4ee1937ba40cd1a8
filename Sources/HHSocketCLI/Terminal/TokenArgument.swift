// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import NIOCore

/// `TEXT`, or `@FILE`: the session token that a client sends with its hello.
enum TokenArgument {
    /// The largest number of bytes that a hello has room for.
    private static let maximumLength = 64 << 10

    static let help = ArgumentHelp(
        """
        Send this session token with hello, as servers that ask for one require. @FILE is the content of a file without \
        the line's end: other users of the machine can see the text of a command.
        """,
        valueName: "text|@file"
    )

    static func parse(_ argument: String) throws -> [UInt8] {
        var token = Array(argument.utf8)
        if argument.hasPrefix("@") {
            let path = String(argument.dropFirst())
            do throws(Input.Failure) {
                // Two more for the end of the line.
                let content = try Input.open(path: path).rest(limit: Self.maximumLength + 2)
                token = Array(content.readableBytesView)
            } catch {
                throw ValidationError("the file \(path) cannot be read: \(error.reason)")
            }
            if token.last == UInt8(ascii: "\n") { token.removeLast() }
            if token.last == UInt8(ascii: "\r") { token.removeLast() }
        }
        guard (1...Self.maximumLength).contains(token.count) else {
            throw ValidationError("a token has 1 to \(Self.maximumLength) bytes, not \(token.count)")
        }
        return token
    }
}
