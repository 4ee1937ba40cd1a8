// SPDX-License-Identifier: Apache-2.0
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

            With --items, --stream, or a method that streams, one call is made, which lasts as long as its stream. Each item \
            from the server is printed with a newline as soon as it is there, and an answer that is not empty at the end. \
            Standard input may still be open then.

            With --verbose the metadata of answers is printed on stderr, one entry per line; with --json it is in the object.
            """
    )

    @Argument(help: ServerAddresses.help)
    var servers: ServerAddresses

    @Option(
        help: """
            The request's type: 16 to 536870911 in the standard format, or hexadecimal digits after 0x. Required without \
            --method.
            """,
        transform: TypeArgument.parse
    )
    var type: UInt32?

    // Unconditional: a payload may begin with a dash.
    @Option(
        parsing: .unconditional,
        help: .value("text", "The payload. Without it and --body-file the payload is empty.")
    )
    var body: String?

    @Option(parsing: .unconditional, help: .value("file", "A file with the payload; - is stdin."))
    var bodyFile: String?

    @Flag(
        help: """
            The client streams: each line of stdin is an item, without its newline. With --method the .proto decides, and \
            lines are messages in JSON.
            """
    )
    var items = false

    @Flag(help: "The server streams. With --method the .proto decides.")
    var stream = false

    @OptionGroup var proto: ProtoOptions

    @OptionGroup var method: MethodOptions

    @Option(duration: "How long each call may take. (default: 8s; with streams, which it covers as a whole, no limit)")
    var timeout: Duration?

    @Option(name: .customLong("repeat"), help: .value("n", "The number of calls to make. (default: 1)"))
    var count: Int?

    @Option(number: "The number of calls to have in flight at once. (default: 1)")
    var inFlight: Int?

    @Flag(help: "Wait for a connection, within the timeout, instead of failing if there is none.")
    var wait = false

    @Option(
        number: """
            How often to send a failed call again, within the timeout. The call must do no harm if it runs twice. (default: 0)
            """
    )
    var retries: Int?

    @Flag(help: "Print the metrics of each call on stderr; with --json in its object.")
    var metrics = false

    @Flag(help: "Print one object per line: serial, type, status, ms, server, and body or, if not UTF-8, bodyBase64.")
    var json = false

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var fields: FieldOptions

    @OptionGroup var hello: HelloOptions

    @OptionGroup var connection: ConnectionOptions

    @OptionGroup var route: RouteOptions

    func validate() throws {
        try self.method.check(with: self.proto)
        _ = try self.fields.header(in: self.format)
        guard (self.type == nil) != (self.method.method == nil) else {
            throw ValidationError(
                self.type == nil
                    ? "--type is missing; give it, or --proto and --method." : "--type and --method exclude each other."
            )
        }
        if let type = self.type { try FormatArgument.validate(type: type, in: self.format) }
        let bodies = [self.body, self.bodyFile, self.method.jsonBody, self.method.jsonBodyFile].compactMap { $0 }
        try require(bodies.count <= 1, "--body, --body-file, --json-body and --json-body-file exclude each other.")
        if self.items, let body = self.givenBody {
            throw ValidationError("\(body) and --items exclude each other: the items are lines of stdin.")
        }
        if let count = self.count, count < 1 { throw ValidationError("--repeat is 1 or more, not \(count).") }
        if let retries = self.retries, retries < 0 { throw ValidationError("--retries is 0 or more, not \(retries).") }
        if let inFlight = self.inFlight, inFlight < 1 {
            throw ValidationError("--in-flight is 1 or more, not \(inFlight).")
        }
        try self.validateStream(self.flaggedKind)
    }

    /// The length of the longest body to read, in bytes: a longer one is not sent. A compressed one may be longer.
    private var longestBody: Int { Frame.defaultMaximumPayloadLength << (self.hello.compress ? 2 : 0) }

    /// Returns the payload that the options describe: the method's request if there is a method.
    private func payload(_ selected: (method: ProtoMethod, codec: PayloadJSON)?) throws -> ByteBuffer {
        if let body = self.body { return ByteBuffer(string: body) }
        if let file = self.bodyFile { return try Input.content(of: file, limit: self.longestBody) }
        guard let (method, codec) = selected else { return ByteBuffer() }
        var text = self.method.jsonBody ?? "{}"
        if let file = self.method.jsonBodyFile {
            let input = try Input.open(file)
            guard let content = try input.rest(limit: PayloadJSON.longestText).utf8Text else {
                StandardError.line("error: The body is not UTF-8, in \(input.name)")
                throw ExitCode.validationFailure
            }
            text = content
        }
        return try codec.request(text, of: method)
    }

    func run() async throws {
        let selected = try self.method.selected(in: self.proto)
        // `validate` has checked that one of them is given.
        let type = self.type ?? selected?.method.type ?? 0
        try FormatArgument.validate(type: type, in: self.format)
        let stream = try self.streamKind(selected?.method)
        let signals = Signals()
        let client = SocketClient(configuration: try self.configuration(streams: stream != nil))
        var printer = AnswerPrinter(
            type: type,
            json: self.json,
            metrics: self.metrics,
            metadata: self.connection.verbose
        )
        if let (method, codec) = selected { printer.message = { try codec.json($0, message: method.response) } }
        let request = self.request(type, stream?.clientStreams == true ? ByteBuffer() : try self.payload(selected))
        var exitCode: ExitCode
        if let stream {
            exitCode = try await self.run(stream, request, of: selected, with: client, until: signals, to: &printer)
        } else {
            exitCode = try await self.run(request, with: client, until: signals, to: &printer)
        }
        self.connection.report(client.history)
        var dropped = DroppedFrames()
        if self.connection.verbose, let news = dropped.news(client.statistics) { StandardError.line(news) }
        if exitCode == .success, printer.hasFailed { exitCode = .failure }
        if exitCode != .success { throw exitCode }
    }

    private func configuration(streams: Bool) throws -> SocketClient.Configuration {
        let inFlight = self.inFlight ?? 1
        var configuration = SocketClient.Configuration(servers: self.servers.endpoints)
        if let timeout = self.timeout { configuration.timeout = timeout }
        configuration.socket.wireFormat = self.format
        configuration.socket.header = try self.fields.header(in: self.format)
        self.hello.apply(to: &configuration, streams: streams)
        configuration.socket.heartbeat = self.connection.heartbeatPolicy
        self.route.apply(to: &configuration.socket)
        configuration.waitsForConnectivity = self.wait
        configuration.maximumInFlight = max(configuration.maximumInFlight, inFlight)
        configuration.maximumWaiting = max(configuration.maximumWaiting, inFlight)
        configuration.retryPolicy = RetryPolicy(maximumAttempts: min(self.retries ?? 0, 1_000_000) + 1)
        // No budget, which would bound the retries of many calls: their number is explicit.
        configuration.retryBudget = nil
        return configuration
    }

    private func request(_ type: UInt32, _ payload: ByteBuffer) -> SocketRequest {
        var request = SocketRequest(type: type, body: payload)
        request.isIdempotent = (self.retries ?? 0) > 0
        self.hello.apply(to: &request)
        return request
    }

    /// Makes calls without streams.
    private func run(
        _ request: SocketRequest,
        with client: SocketClient,
        until signals: Signals,
        to printer: inout AnswerPrinter
    ) async throws(StandardOutput.Failure) -> ExitCode {
        let calls = CallSequence(
            client: client,
            request: request,
            timeout: client.configuredTimeout,
            deadline: self.hello.deadline,
            count: self.count ?? 1,
            inFlight: self.inFlight ?? 1
        )
        let interruption = Self.interruption(signals) { calls.cancel() }
        defer { interruption.cancel() }
        var silence = SilenceHint(self.format)
        let everyCallSucceeded = try await calls.run { (outcome) throws(StandardOutput.Failure) in
            silence.note(outcome)
            try printer.print(outcome)
        }
        if let hint = silence.text { StandardError.line(hint) }
        return everyCallSucceeded ? .success : .failure
    }

    /// Calls `cancel` at the first signal.
    static func interruption(
        _ signals: Signals,
        _ cancel: @escaping @Sendable () -> Void
    ) -> Task<Void, Never> {
        Task { [stream = signals.stream] in
            var isFirst = true
            for await _ in stream {
                // A second signal ends the process at once.
                guard isFirst else { Self.exit(withError: ExitCode.failure) }
                isFirst = false
                cancel()
            }
        }
    }
}
