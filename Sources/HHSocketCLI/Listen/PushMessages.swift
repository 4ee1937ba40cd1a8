// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// A decoder of pushes as the messages declared in `.proto` files.
struct PushMessages: Sendable {
    private let schema: ProtoSchema
    private let codec: PayloadJSON

    init(_ schema: ProtoSchema) {
        self.schema = schema
        self.codec = PayloadJSON(schema)
    }

    /// Returns a push in JSON; nil for types without a message, and for payloads that cannot be read as the message,
    /// which is reported on stderr.
    func json(_ push: SocketPush) -> JSONValue? {
        guard let message = self.schema.push(push.type) else { return nil }
        do throws(PayloadJSON.Unsuitable) {
            let printed = try self.codec.json(push.body, message: message.name)
            for reason in printed.faults {
                StandardError.line(
                    "error: A part of a push of type \(push.type) cannot be represented in JSON: \(reason.inOneLine)"
                )
            }
            return printed.json
        } catch {
            StandardError.line("error: A push of type \(push.type) cannot be read: \(error.description.inOneLine)")
            return nil
        }
    }
}
