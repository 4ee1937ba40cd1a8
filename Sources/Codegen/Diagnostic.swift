// SPDX-License-Identifier: Apache-2.0
import Foundation
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// A position in a `.proto`.
struct SourcePosition: Hashable, Comparable {
    let file: String
    /// The line, from 1; 0 if protoc does not provide it.
    var line: Int32 = 0
    var column: Int32 = 0

    /// - Parameter within: The path from the element to the relevant part of it. If the position of that part is not
    ///   known, the element's own position is used.
    init(_ element: some ProvidesLocationPath, within: [Int] = []) {
        var path = IndexPath()
        element.getLocationPath(path: &path)
        self.init(in: element.file, [path.appending(IndexPath(indexes: within)), path])
    }

    /// Creates the position of the first of the paths whose position is known.
    init(in file: FileDescriptor, _ paths: [IndexPath]) {
        self.file = file.name
        for path in paths {
            guard let span = file.sourceCodeInfoLocation(path: path)?.span, span.count >= 3 else { continue }
            // protoc counts from 0; people and editors count from 1.
            self.line = span[0] + 1
            self.column = span[1] + 1
            return
        }
    }

    static func < (one: Self, other: Self) -> Bool {
        (one.file, one.line, one.column) < (other.file, other.line, other.column)
    }
}

extension SourcePosition: CustomStringConvertible {
    /// The position in the style of compilers, such as `zoo.proto:12:3`.
    var description: String { self.line > 0 ? "\(self.file):\(self.line):\(self.column)" : self.file }
}

/// An error in a `.proto`, and its position.
struct Diagnostic: Hashable {
    var position: SourcePosition
    var text: String

    init(_ element: some ProvidesLocationPath, within: [Int] = [], _ text: String) {
        self.position = SourcePosition(element, within: within)
        self.text = text
    }

    init(at position: SourcePosition, _ text: String) {
        self.position = position
        self.text = text
    }
}

extension Diagnostic: CustomStringConvertible {
    var description: String { "\(self.position): \(self.text)" }
}

/// All errors that were found, reported together.
struct Diagnostics: Error, CustomStringConvertible {
    let list: [Diagnostic]

    init(_ diagnostics: [Diagnostic]) {
        self.list = diagnostics.sorted { $0.position < $1.position }
    }

    var description: String { self.list.map(\.description).joined(separator: "\n") }
}
