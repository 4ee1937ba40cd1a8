// SPDX-License-Identifier: Apache-2.0
extension Google_Protobuf_FieldMask {
    /// Creates a mask of paths as in the `.proto`, such as `author.display_name`.
    public init(protoPaths: [String]) {
        self.init()
        self.paths = protoPaths
    }
}
