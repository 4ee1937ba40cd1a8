// SPDX-License-Identifier: Apache-2.0
import GRPCCore

// Items are sent as they are, without Protobuf, so this is a little less work than that of gRPC C++.

struct RawSerializer: MessageSerializer {
    func serialize<Bytes: GRPCContiguousBytes>(_ message: [UInt8]) throws -> Bytes { Bytes(message) }
}

struct RawDeserializer: MessageDeserializer {
    func deserialize<Bytes: GRPCContiguousBytes>(_ bytes: Bytes) throws -> [UInt8] {
        bytes.withUnsafeBytes { [UInt8]($0) }
    }
}
