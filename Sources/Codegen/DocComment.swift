// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Converts the comments of a `.proto` to documentation comments in Swift.
enum DocComment {
    /// The comment's lines, each with its newline, and a deprecation notice; empty if there are none. A leading comment
    /// takes precedence over a trailing one.
    static func lines(of element: some ProvidesSourceCodeLocation & ProvidesDeprecationComment) -> String {
        let comment = Self.lines(commentOf: element)
        let deprecation = element.deprecationComment(commentPrefix: "///")
        return comment.isEmpty || deprecation.isEmpty ? comment + deprecation : "\(comment)///\n\(deprecation)"
    }

    /// The lines of the comment of an element that cannot be deprecated.
    static func lines(commentOf element: some ProvidesSourceCodeLocation) -> String {
        guard let location = element.sourceCodeInfoLocation else { return "" }
        return Self.lines(location.hasLeadingComments ? location.leadingComments : location.trailingComments)
    }

    static func lines(_ comment: String) -> String {
        // Split at every character that ends a line in Swift, so that the rest of a comment cannot become code.
        var lines = comment.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).map { line in
            let text = line.reversed().drop(while: \.isWhitespace).reversed().filter { $0 != "\0" }
            return text.isEmpty || text.first == " " ? String(text) : " " + String(text)
        }
        while lines.last?.isEmpty == true { lines.removeLast() }
        while lines.first?.isEmpty == true { lines.removeFirst() }
        return lines.map { "///\($0)\n" }.joined()
    }
}
