import ArgumentParser
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore

struct CallCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "call",
        abstract: "Make calls and print their answers' payloads.",
        discussion: """
            Payloads are printed byte for byte, in the order in which the answers arrive, without anything between them. \
            A call that fails prints `error: CODE: message` on stderr, and its answer's payload if there is one; the other \
            calls are still made. The exit code is 0 if every answer has status 200, else 1.

            With --proto and --method the request is written in protobuf's JSON, and answers are printed in it: indented \
            on a terminal, else one per line. An answer that cannot be read as the method's message is an error. Parts \
            of a message that JSON has no form for are printed as their plain fields or in Base64, and reported. Payloads \
            of other statuses are printed byte for byte.

            With --verbose the metadata of answers is printed on stderr, one entry per line; with --json it is in the object.
            """
    )

    @Argument(help: ServerAddresses.help)
    var servers: ServerAddresses

    @Option(help: "The request's type: 16 to 536870911 in the standard format. Required without --method.")
    var type: UInt32?

    // Unconditional: a payload may begin with a dash.
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("The payload. Without it and --body-file the payload is empty.", valueName: "text")
    )
    var body: String?

    @Option(parsing: .unconditional, help: ArgumentHelp("A file with the payload; - is stdin.", valueName: "file"))
    var bodyFile: String?

    @OptionGroup var method: MethodOptions

    @Option(
        help: ArgumentHelp("How long each call may take. (default: 8s)", valueName: "duration"),
        transform: DurationArgument.parse
    )
    var timeout: Duration?

    @Option(name: .customLong("repeat"), help: ArgumentHelp("The number of calls to make.", valueName: "n"))
    var count = 1

    @Option(help: ArgumentHelp("The number of calls to have in flight at once.", valueName: "n"))
    var inFlight = 1

    @Flag(help: "Wait for a connection, within the timeout, instead of failing if there is none.")
    var wait = false

    @Option(
        help: ArgumentHelp(
            "How often to send a failed call again, within the timeout. The call must do no harm if it runs twice.",
            valueName: "n"
        )
    )
    var retries = 0

    @Flag(help: "Print the metrics of each call on stderr; with --json in its object.")
    var metrics = false

    @Flag(help: "Print one object per line: serial, type, status, ms, server, and body or, if not UTF-8, bodyBase64.")
    var json = false

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var fields: FieldOptions

    @OptionGroup var hello: HelloOptions

    @OptionGroup var connection: ConnectionOptions

    func validate() throws {
        _ = try self.fields.header(in: self.format)
        guard (self.type == nil) != (self.method.method == nil) else {
            throw ValidationError(
                self.type == nil
                    ? "--type is missing; give it, or --proto and --method." : "--type and --method exclude each other."
            )
        }
        if let type = self.type { try FormatArgument.validate(type: type, in: self.format) }
        let bodies = [self.body, self.bodyFile, self.method.jsonBody, self.method.jsonBodyFile].compactMap { $0 }
        guard bodies.count <= 1 else {
            throw ValidationError("--body, --body-file, --json-body and --json-body-file exclude each other.")
        }
        guard self.count >= 1 else { throw ValidationError("--repeat is 1 or more, not \(self.count).") }
        guard self.retries >= 0 else { throw ValidationError("--retries is 0 or more, not \(self.retries).") }
        try self.hello.validate(in: self.format)
        guard self.inFlight >= 1 else { throw ValidationError("--in-flight is 1 or more, not \(self.inFlight).") }
    }

    /// Returns the payload that the options describe: the method's request if there is a method.
    private func payload(_ selected: (method: ProtoMethod, codec: MessageJSON)?) throws -> ByteBuffer {
        if let body = self.body { return ByteBuffer(string: body) }
        if let file = self.bodyFile { return ByteBuffer(bytes: try InputFile.content(of: file)) }
        guard let (method, codec) = selected else { return ByteBuffer() }
        var text = self.method.jsonBody ?? "{}"
        if let file = self.method.jsonBodyFile {
            guard let content = ByteBuffer(bytes: try InputFile.content(of: file)).validUTF8 else {
                StandardError.line("error: The body is not UTF-8, in \(InputFile.name(of: file))")
                throw ExitCode.validationFailure
            }
            text = content
        }
        do throws(MessageJSON.Unsuitable) {
            return try codec.payload(text, message: method.request)
        } catch {
            StandardError.line("error: The body is not a valid \(method.request): \(error.description)")
            throw ExitCode.validationFailure
        }
    }

    func run() async throws {
        Signals.ignoreBrokenPipes()
        let selected = try self.method.selected()
        // `validate` has checked that one of them is given.
        let type = self.type ?? selected?.method.type ?? 0
        try FormatArgument.validate(type: type, in: self.format)
        let payload = try self.payload(selected)
        let signals = Signals()
        var configuration = SocketClient.Configuration(servers: self.servers.endpoints)
        if let timeout = self.timeout { configuration.timeout = timeout }
        configuration.socket.wireFormat = self.format
        configuration.socket.header = try self.fields.header(in: self.format)
        self.hello.apply(to: &configuration)
        try self.connection.apply(to: &configuration.socket)
        configuration.waitsForConnectivity = self.wait
        configuration.maximumInFlight = max(configuration.maximumInFlight, self.inFlight)
        configuration.maximumWaiting = max(configuration.maximumWaiting, self.inFlight)
        configuration.retryPolicy = RetryPolicy(maximumAttempts: min(self.retries, 1_000_000) + 1)
        // No budget, which would bound the retries of many calls: their number is explicit.
        configuration.retryBudget = nil
        var request = SocketRequest(type: type, body: payload)
        request.isIdempotent = self.retries > 0
        self.hello.apply(to: &request)
        let client = SocketClient(configuration: configuration)
        let calls = CallSequence(
            client: client,
            request: request,
            timeout: configuration.timeout,
            deadline: self.hello.deadline,
            count: self.count,
            inFlight: self.inFlight
        )
        let interruption = Task { [stream = signals.stream] in
            var isFirst = true
            for await _ in stream {
                // A second signal ends the process at once.
                guard isFirst else { Self.exit(withError: ExitCode.failure) }
                isFirst = false
                calls.cancel()
            }
        }
        var printer = AnswerPrinter(
            type: type,
            json: self.json,
            metrics: self.metrics,
            metadata: self.connection.verbose
        )
        if let (method, codec) = selected { printer.message = { try codec.json($0, message: method.response) } }
        var silence = SilenceHint(self.format)
        let everyCallSucceeded = await calls.run { outcome in
            silence.note(outcome)
            try printer.print(outcome)
        }
        interruption.cancel()
        if let hint = silence.text { StandardError.line(hint) }
        self.connection.report(client.history)
        var dropped = DroppedFrames()
        if self.connection.verbose, let news = dropped.news(client.statistics) { StandardError.line(news) }
        if !everyCallSucceeded || printer.hasFailed { throw ExitCode.failure }
    }
}
