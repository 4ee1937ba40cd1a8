// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf

/// The comments of a file's declarations, by their paths, seen from the file or from one of them.
struct ProtoComments {
    private var comments: [[Int32]: String] = [:]
    private var path: [Int32] = []

    init(_ file: Google_Protobuf_FileDescriptorProto) {
        for location in file.sourceCodeInfo.location {
            let comment = location.hasLeadingComments ? location.leadingComments : location.trailingComments
            if !comment.isEmpty { self.comments[location.path] = comment }
        }
    }

    /// The comment of the declaration itself; empty if it has none.
    var own: String { self.comments[self.path] ?? "" }
    /// 1 for a declaration at the top level of the file, and 1 more for each that it is within.
    var depth: Int { self.path.count / 2 }

    /// Those of an inner declaration, by the number of its list in the descriptor, and its index there.
    subscript(list: Int32, index: Int) -> Self {
        var inner = self
        inner.path += [list, Int32(index)]
        return inner
    }
}
