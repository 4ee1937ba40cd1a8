import Foundation

/// `hhsocket/options.proto`, so that files which import it are understood wherever they lie.
enum OptionsProto {
    private static let text = """
        syntax = "proto3";

        package hhsocket;

        import "google/protobuf/descriptor.proto";

        extend google.protobuf.MethodOptions {
          optional uint32 message_type = 50501;
        }

        extend google.protobuf.MessageOptions {
          optional uint32 push_type = 50501;
        }
        """

    /// - Parameter folder: Is made; it is the one to look for imports in.
    static func write(to folder: URL) throws {
        let parent = folder.appendingPathComponent("hhsocket")
        try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
        try Self.text.write(to: parent.appendingPathComponent("options.proto"), atomically: false, encoding: .utf8)
    }
}
