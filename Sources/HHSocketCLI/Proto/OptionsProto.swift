// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The file `hhsocket/options.proto`, so that files anywhere can import it.
enum OptionsProto {
    /// The contents of `Protos/hhsocket/options.proto`; a test compares the two.
    static let text = """
        // The options that declare the numbers that HHSocket sends instead of names. Import this file and write
        //
        //   rpc Send(Note) returns (Receipt) {
        //     option (hhsocket.message_type) = 101;
        //   }
        //   message Joined {
        //     option (hhsocket.push_type) = 2001;
        //   }
        //
        // The numbers are the types of frames: 16 to 536870911 (0x1FFFFFFF); the protocol itself uses 0 to 15. A number
        // must be unique among the methods and pushes of all files that a server or a client is generated from.
        syntax = "proto3";

        package hhsocket;

        import "google/protobuf/descriptor.proto";

        extend google.protobuf.MethodOptions {
          // The type of the frames of a call of the method.
          optional uint32 message_type = \(CustomOptions.number);
        }

        extend google.protobuf.MessageOptions {
          // The type of the frames in which a server pushes the message.
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
