import SwiftProtobufPluginLibrary

/// What all generators of one file need to know.
struct Context {
    let options: GeneratorOptions
    let file: FileDescriptor
    let names: Names
    let recursion = RecursionFinder()

    init(options: GeneratorOptions, file: FileDescriptor) {
        self.options = options
        self.file = file
        self.names = Names(options: options, file: file)
    }

    /// What stands before a declaration, with a space behind it; nothing for internal ones.
    var access: String {
        switch self.options.visibility {
        case .public: "public "
        case .package: "package "
        case .internal: ""
        }
    }

    /// Whether the file has messages that are generated here.
    var generatesMessages: Bool { self.options.messages == .protobufC }

    /// Whether the file's services leave anything in Swift.
    var generatesServices: Bool {
        !self.file.services.isEmpty && (self.options.client || self.options.server || self.options.mocks)
    }
}
