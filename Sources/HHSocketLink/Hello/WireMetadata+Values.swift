// SPDX-License-Identifier: Apache-2.0
extension WireMetadata {
    package init(values: [String: String]) {
        self.init()
        self.values = values
    }

    /// The total length of the names and values, in bytes of UTF-8.
    package static func length(of values: [String: String]) -> Int {
        values.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    }
}
