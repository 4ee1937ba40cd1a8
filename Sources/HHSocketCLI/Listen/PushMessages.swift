import HHSocketRPC

/// What pushes hold, by what `.proto` files declare.
struct PushMessages: Sendable {
    private let schema: ProtoSchema
    private let codec: MessageJSON

    init(_ schema: ProtoSchema) {
        self.schema = schema
        self.codec = MessageJSON(schema)
    }

    /// Nil for types that no message has, and for payloads that are no such message, of which stderr is told.
    func json(_ push: SocketPush) -> JSONValue? {
        guard let message = self.schema.push(push.type) else { return nil }
        do throws(MessageJSON.Unsuitable) {
            return try self.codec.json(push.body, message: message.name)
        } catch {
            StandardError.line("error: A push of type \(push.type) cannot be read: \(error.description.inOneLine)")
            return nil
        }
    }
}
