// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The file `hhsocket/options.proto`, so that files anywhere can import it.
enum OptionsProto {
    /// The contents of `Protos/hhsocket/options.proto`; a test compares the two.
    static let text = """
        // The options by which a .proto says the numbers that HHSocket sends in the place of names. Import it and write
        //
        //   rpc Send(Note) returns (Receipt) {
        //     option (hhsocket.message_type) = 101;
        //   }
        //   message Joined {
        //     option (hhsocket.push_type) = 2001;
        //   }
        //
        // The numbers are those in the headers of frames: 16 to 536870911 (0x1FFFFFFF); 0 to 15 are the protocol's own. Each
        // names one method or one push, among all the files that a server or a client is made of.
        syntax = "proto3";

        package hhsocket;

        import "google/protobuf/descriptor.proto";

        extend google.protobuf.MethodOptions {
          // The number by which the method is called.
          optional uint32 message_type = \(CustomOptions.number);
        }

        extend google.protobuf.MessageOptions {
          // The number by which the message is pushed to clients that have not asked for it.
          optional uint32 push_type = \(CustomOptions.number);
        }

        """

    /// Writes the file.
    ///
    /// - Parameter folder: The import path, which is created.
    static func write(to folder: URL) throws {
        let parent = folder.appendingPathComponent("hhsocket")
        try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
        try Self.text.write(to: parent.appendingPathComponent("options.proto"), atomically: false, encoding: .utf8)
    }
}
