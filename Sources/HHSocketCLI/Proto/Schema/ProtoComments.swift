// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf

/// The comments of a file, by the paths of their declarations.
struct ProtoComments {
    private var comments: [[Int32]: String] = [:]

    init(_ file: Google_Protobuf_FileDescriptorProto) {
        for location in file.sourceCodeInfo.location {
            let comment = location.hasLeadingComments ? location.leadingComments : location.trailingComments
            if !comment.isEmpty { self.comments[location.path] = comment }
        }
    }

    /// The comment of a declaration; empty if it has none.
    subscript(path: [Int32]) -> String { self.comments[path] ?? "" }
}
