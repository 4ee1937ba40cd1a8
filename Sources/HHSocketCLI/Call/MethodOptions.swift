// SPDX-License-Identifier: Apache-2.0
import ArgumentParser

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
        do throws(ProtoError) {
            let method = try schema.method(name)
            guard method.type != nil else {
                throw ProtoError("\(method.name) has no number: option (hhsocket.message_type) is missing.")
            }
            return (method, PayloadJSON(schema, emitsDefaults: self.emitDefaults))
        } catch {
            StandardError.line("error: \(error.description)")
            throw ExitCode.validationFailure
        }
    }
}
