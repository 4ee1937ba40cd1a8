// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketTransfers

/// The id of a file in a store.
struct TransferIDArgument: ExpressibleByArgument, Sendable {
    var id: TransferID

    /// The form of an id, for help texts and errors.
    static let form = "1 to \(TransferID.maximumLength) of A-Z a-z 0-9 . _ - and neither . nor .."

    init?(argument: String) {
        guard let id = TransferID(argument) else { return nil }
        self.id = id
    }
}

/// The type numbers of transfers on the command line: the first of four.
enum TransferTypesArgument {
    static let help = ArgumentHelp(
        "The first of the four type numbers of transfers. Client and server must have the same. (default: 0x1FFF0000)",
        valueName: "type"
    )

    static func parse(_ text: String) throws -> TransferTypes {
        let first = try TypeArgument.parse(text)
        guard first <= .max - 3 else { throw ValidationError("four types begin at \(UInt32.max - 3) at most") }
        return TransferTypes(first: first)
    }

    /// Refuses type numbers that a format does not leave to applications.
    static func validate(_ types: TransferTypes, in format: WireFormat) throws {
        for type in [types.put, types.get, types.find, types.discard] where !format.isCallType(type) {
            throw ValidationError(
                "The type \(type) is not for calls in the format \(format); --transfer-types chooses another."
            )
        }
    }
}
