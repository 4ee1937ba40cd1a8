// SPDX-License-Identifier: Apache-2.0
/// Numbers of fields in `google/protobuf/descriptor.proto`, the elements of paths to source locations.
enum DescriptorPaths {
    static let fileOptions = 8
    static let messageOptions = 7
    static let swiftPrefix = 39
    static let methodOptions = 4
}
