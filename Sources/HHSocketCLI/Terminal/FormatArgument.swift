// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket
import HHSocketFormats
import NIOCore

/// `--format`: a preset's name, or a JSON file that describes a layout (`Docs/WireFormat.md`).
enum FormatArgument {
    static let help = ArgumentHelp(
        "The layout of frames: standard, tgcd, plain, mars, separated, or a JSON file that describes it.",
        valueName: "name|file"
    )

    /// The length of the longest file that describes a format, in bytes.
    private static let longestDescription = 1 << 20

    static func parse(_ argument: String) throws -> WireFormat {
        if let preset = WireFormat.presets[argument] { return preset }
        let json: ByteBuffer
        do throws(Input.Failure) {
            json = try Input.open(path: argument).rest(limit: self.longestDescription)
        } catch {
            let presets = WireFormat.presets.keys.sorted().joined(separator: ", ")
            throw ValidationError(
                "it is not one of \(presets), nor a readable file (\(error.reason))"
            )
        }
        do throws(WireFormatError) {
            return try WireFormat(json: Data(json.readableBytesView))
        } catch {
            throw ValidationError("\(error.message) (\(error.rule))")
        }
    }

    /// Refuses a type that belongs to the format itself.
    static func validate(type: UInt32, in format: WireFormat) throws {
        guard format.isApplicationType(type) else {
            let types = format.layout.applicationTypes
            throw ValidationError(
                """
                Type \(type) is reserved in the format \(format); calls and pushes have types from \(types.lowerBound) to \
                \(types.upperBound), or what applicationTypes says in a format of your own.
                """
            )
        }
    }

    static func requireHello(in format: WireFormat) throws {
        try require(format.supportsHello, "The format \(format) cannot have hello: \(WireFormat.helloNeeds).")
    }
}
