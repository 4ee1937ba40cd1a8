import HHSocketRPC

/// Reads pushes as the messages that `.proto` files declare.
struct PushMessages: Sendable {
    private let schema: ProtoSchema
    private let codec: MessageJSON

    init(_ schema: ProtoSchema) {
        self.schema = schema
        self.codec = MessageJSON(schema)
    }

    /// Nil for types that no message has, and for payloads that are not such a message, which is reported on stderr.
    func json(_ push: SocketPush) -> JSONValue? {
        guard let message = self.schema.push(push.type) else { return nil }
        do throws(MessageJSON.Unsuitable) {
            let printed = try self.codec.json(push.body, message: message.name)
            for complaint in printed.complaints {
                StandardError.line(
                    "error: A part of a push of type \(push.type) cannot be put into JSON: \(complaint.inOneLine)"
                )
            }
            return printed.json
        } catch {
            StandardError.line("error: A push of type \(push.type) cannot be read: \(error.description.inOneLine)")
            return nil
        }
    }
}
