// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import NIOCore

/// The options of `call` for a method of its `.proto`, and the method's request.
struct MethodOptions: ParsableArguments {
    @Option(
        help: .value(
            "name",
            "The method to call, such as chat.Chat/Send. Its type is the number that the .proto gives it."
        )
    )
    var method: String?

    @Option(parsing: .unconditional, help: .value("json", "The method's request in JSON. (default: {})"))
    var jsonBody: String?

    @Option(parsing: .unconditional, help: .value("file", "A file with the method's request in JSON; - is stdin."))
    var jsonBodyFile: String?

    @Flag(help: "Also print fields that are zero or empty.")
    var emitDefaults = false

    /// Checks the options together with those for the `.proto`.
    func check(with proto: ProtoOptions) throws(ValidationError) {
        try require((self.method == nil) == (proto.proto == nil), "--proto and --method must be given together.")
        guard self.method != nil || (self.jsonBody == nil && self.jsonBodyFile == nil && !self.emitDefaults) else {
            throw ValidationError("--json-body, --json-body-file and --emit-defaults require --proto and --method.")
        }
    }

    /// Returns the method and the codec of its messages; nil if none is given. Errors are reported on stderr.
    func selected(in proto: ProtoOptions) throws -> (method: ProtoMethod, codec: PayloadJSON)? {
        guard let name = self.method, let schema = try proto.schema() else { return nil }
        return (try schema.numberedMethod(name).method, PayloadJSON(schema, emitsDefaults: self.emitDefaults))
    }
}

extension ProtoSchema {
    /// Returns the method with this name, and the type of its frames. Errors are reported on stderr.
    func numberedMethod(_ name: String) throws -> (method: ProtoMethod, type: UInt32) {
        do throws(ProtoError) {
            let method = try self.method(name)
            guard let type = method.type else {
                throw ProtoError("\(method.name) has no number: option (hhsocket.message_type) is missing.")
            }
            return (method, type)
        } catch {
            StandardError.line("error: \(error.description)")
            throw ExitCode.validationFailure
        }
    }
}

extension PayloadJSON {
    /// Returns the payload of a method's request in JSON. Errors are reported on stderr.
    func request(_ text: String, of method: ProtoMethod) throws -> ByteBuffer {
        do throws(Unsuitable) {
            return try self.payload(text, message: method.request)
        } catch {
            StandardError.line("error: The body is not a valid \(method.request): \(error.description)")
            throw ExitCode.validationFailure
        }
    }
}
