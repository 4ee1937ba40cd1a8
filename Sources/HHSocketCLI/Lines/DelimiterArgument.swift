// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// The end of a line on the command line.
enum DelimiterArgument {
    static let help = ArgumentHelp(
        "The end of a line: lf, crlf, any (LF or CR LF comes, LF is sent), nul, or bytes in hexadecimal. (default: lf)",
        valueName: "delimiter"
    )

    static func parse(_ text: String) throws -> LineDelimiter {
        guard let delimiter = LineDelimiter(text) else {
            throw ValidationError("expected lf, crlf, any, nul, or 1 to 64 bytes in hexadecimal, such as 0d0a")
        }
        return delimiter
    }
}
