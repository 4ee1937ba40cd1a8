/// Numbers of fields in `google/protobuf/descriptor.proto`, of which the paths to places in a file are made.
enum DescriptorPaths {
    static let fileSyntax = 12
    static let fileEdition = 14
    static let messageOptions = 7
    static let methodOptions = 4
}
