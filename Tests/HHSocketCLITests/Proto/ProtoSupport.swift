// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOCore
import TestSupport

@testable import HHSocketCLI

/// The declarations for tests of JSON.
enum TestProtos {
    static let folder = packageFolder.appendingPathComponent("Tests/HHSocketCLITests/Protos")
    static let source = Self.folder.appendingPathComponent("everything.proto").path
    static let descriptorSet = Self.folder.appendingPathComponent("everything.pb").path

    static func descriptors() throws -> Data { try Data(contentsOf: URL(fileURLWithPath: Self.descriptorSet)) }

    static func schema() throws -> ProtoSchema { try SchemaBuilder.schema(of: Self.descriptors(), onlyLast: false) }

    /// Reads a message from JSON, and returns it as JSON again.
    static func roundTrip(
        _ json: String,
        as message: String = "test.Everything",
        emitsDefaults: Bool = false
    ) throws -> String {
        let codec = PayloadJSON(try Self.schema(), emitsDefaults: emitsDefaults)
        return try codec.json(codec.payload(json, message: message), message: message).json.text()
    }

    /// The reason why JSON cannot be read as a message; nil if it can.
    static func reason(_ json: String, as message: String = "test.Everything") throws -> String? {
        let codec = PayloadJSON(try Self.schema())
        do throws(PayloadJSON.Unsuitable) {
            _ = try codec.payload(json, message: message)
            return nil
        } catch {
            return error.description
        }
    }
}
