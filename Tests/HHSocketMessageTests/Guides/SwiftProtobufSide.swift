// SPDX-License-Identifier: Apache-2.0
import ReferenceMessages
import SwiftProtobuf

/// Their side of `Docs/MigratingFromSwiftProtobuf.md`, word for word.
struct SwiftProtobufSide {
    func celebrateBirthday(of bytes: [UInt8]) throws -> [UInt8] {
        var animal = try Extended_Animal(serializedBytes: bytes, extensions: Extended_Extended_Extensions)
        animal.Extended_age += 1
        animal.name = animal.hasName ? animal.name : "nameless"
        return try animal.serializedBytes()
    }

    func describe(_ json: String) -> String {
        var options = JSONDecodingOptions()
        options.ignoreUnknownFields = true
        do {
            return try Extended_Animal(jsonString: json, options: options).name
        } catch {
            return "not an animal: \(error)"
        }
    }

    func isAnimal(_ bytes: [UInt8]) -> Bool {
        do {
            _ = try Extended_Animal(serializedBytes: bytes)
            return true
        } catch BinaryDecodingError.missingRequiredFields {
            print("a required field is missing")
            return false
        } catch {
            return false
        }
    }

    /// An animal, which the other functions take.
    func animal(_ name: String, age: Int32) throws -> [UInt8] {
        var animal = Extended_Animal()
        animal.heart = Extended_Animal.Heart()
        animal.name = name
        animal.Extended_age = age
        return try animal.serializedBytes()
    }

    func age(of bytes: [UInt8]) throws -> Int32 {
        try Extended_Animal(serializedBytes: bytes, extensions: Extended_Extended_Extensions).Extended_age
    }
}
