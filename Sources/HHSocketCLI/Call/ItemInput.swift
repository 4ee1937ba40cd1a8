// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import NIOCore

/// The items that a call sends, one for each line of standard input.
struct ItemInput: Sendable {
    /// The reason for which a line is no item.
    struct Failure: Error {
        var message: String
        var exitCode: ExitCode
    }

    private let lines = InputLines()
    /// Converts a line from a message in JSON, and the message's name; nil to send lines as they are.
    private let message: (name: String, codec: PayloadJSON)?

    init(_ message: (name: String, codec: PayloadJSON)? = nil) {
        self.message = message
    }

    /// Hands the items to `send` until that returns false.
    func read(_ send: (ByteBuffer) async -> Bool) async throws(Failure) {
        var number = 0
        while let line = try await self.next() {
            number += 1
            guard case .bytes(let bytes) = line else {
                let limit = InputLines.maximumLength >> 20
                throw Failure(
                    message: "Line \(number) of stdin is longer than \(limit) MiB, and was not sent",
                    exitCode: .failure
                )
            }
            guard await send(try self.item(bytes, number)) else { return }
        }
    }

    private func next() async throws(Failure) -> InputLines.Line? {
        do throws(Input.Failure) {
            return try await self.lines.next()
        } catch {
            throw Failure(message: "\(error)", exitCode: .failure)
        }
    }

    /// Returns the item of a line. An empty one is an empty item, which as a message has no field.
    private func item(_ line: ByteBuffer, _ number: Int) throws(Failure) -> ByteBuffer {
        guard let message, line.readableBytes > 0 else { return line }
        do throws(PayloadJSON.Unsuitable) {
            guard let text = line.utf8Text else { throw PayloadJSON.Unsuitable(description: "it is not UTF-8") }
            return try message.codec.payload(text, message: message.name)
        } catch {
            throw Failure(
                message: "Line \(number) of stdin is not a valid \(message.name): \(error.description)",
                exitCode: .validationFailure
            )
        }
    }
}
