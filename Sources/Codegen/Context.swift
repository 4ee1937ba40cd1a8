// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// The state that all generators of one file share.
struct Context {
    let options: GeneratorOptions
    let file: FileDescriptor
    let names: Names
    let storage = StorageDecision()
    let required = RequiredFields()

    init(options: GeneratorOptions, file: FileDescriptor) {
        self.options = options
        self.file = file
        self.names = Names(options: options, file: file)
    }

    /// The access modifier before a declaration, with a trailing space; empty for `internal`.
    var access: String {
        self.options.visibility == .internal ? "" : "\(self.options.visibility.keyword) "
    }

    /// Whether this generator writes the file's messages.
    var generatesMessages: Bool { self.options.messages == .hhsocket }

    /// Whether any code is generated for the file's services.
    var generatesServices: Bool {
        !self.file.services.isEmpty && (self.options.client || self.options.server || self.options.mocks)
    }
}

extension CodePrinter {
    /// Prints lines of which the last opens a block, the block, and its end.
    mutating func printBlock(_ opening: String..., body: (inout CodePrinter) -> Void) {
        for line in opening { self.print(line) }
        self.withIndentation(body: body)
        self.print("}")
    }
}
