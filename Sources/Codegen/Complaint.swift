import Foundation
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Where something stands in a `.proto`.
struct SourcePlace: Hashable, Comparable {
    let file: String
    /// From 1; 0 where protoc does not tell.
    var line: Int32 = 0
    var column: Int32 = 0

    /// - Parameter within: A path from the element to the part of it that is meant; where nothing is known about that
    ///   part, it is the element's own place.
    init(_ element: some ProvidesLocationPath, within: [Int] = []) {
        var path = IndexPath()
        element.getLocationPath(path: &path)
        self.init(in: element.file, [path.appending(IndexPath(indexes: within)), path])
    }

    /// The first of the paths about which anything is known.
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

extension SourcePlace: CustomStringConvertible {
    /// `zoo.proto:12:3`, as compilers write it.
    var description: String { self.line > 0 ? "\(self.file):\(self.line):\(self.column)" : self.file }
}

/// What is wrong in a `.proto`, and where.
struct Complaint: Hashable {
    var place: SourcePlace
    var text: String

    init(_ element: some ProvidesLocationPath, within: [Int] = [], _ text: String) {
        self.place = SourcePlace(element, within: within)
        self.text = text
    }

    init(at place: SourcePlace, _ text: String) {
        self.place = place
        self.text = text
    }
}

extension Complaint: CustomStringConvertible {
    var description: String { "\(self.place): \(self.text)" }
}

/// All that is wrong, so that it need not be found out one by one.
struct Complaints: Error, CustomStringConvertible {
    let list: [Complaint]

    init(_ complaints: [Complaint]) {
        self.list = complaints.sorted { $0.place < $1.place }
    }

    var description: String { self.list.map(\.description).joined(separator: "\n") }
}
