// SPDX-License-Identifier: Apache-2.0
/// An error of a plugin, which SwiftPM prints.
struct PluginError: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) {
        self.description = description
    }
}
