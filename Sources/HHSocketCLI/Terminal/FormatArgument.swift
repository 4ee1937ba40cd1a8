// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket

/// `--format`: a preset's name, or a JSON file that describes a layout (`Docs/WireFormat.md`).
enum FormatArgument {
    static let help = ArgumentHelp(
        "The layout of frames: standard, tgcd, plain, mars, separated, or a JSON file that describes it.",
        valueName: "name|file"
    )

    static func parse(_ argument: String) throws -> WireFormat {
        if let preset = WireFormat.presets[argument] { return preset }
        let json: Data
        do {
            json = try Data(contentsOf: URL(fileURLWithPath: argument))
        } catch {
            let presets = WireFormat.presets.keys.sorted().joined(separator: ", ")
            throw ValidationError(
                "it is not one of \(presets), nor a readable file (\(error.localizedDescription))"
            )
        }
        do throws(WireFormatError) {
            return try WireFormat(json: json)
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
}
