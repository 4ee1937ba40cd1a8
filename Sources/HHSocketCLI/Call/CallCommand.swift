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
            Payloads are printed byte for byte, in the order in which the answers come, and nothing is put between them. \
            A call that fails prints `error: CODE: message` on stderr, and its answer's payload if it has one; the other \
            calls are still made. The exit code is 0 when every answer has status 200, else 1.
            """
    )

    @Argument(help: ServerAddresses.help)
    var servers: ServerAddresses

    @Option(help: "The request's type: 16 to 536870911 in the standard format.")
    var type: UInt32

    // Unconditional: a payload may begin with a dash.
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("The payload. Without it and --body-file the payload is empty.", valueName: "text")
    )
    var body: String?

    @Option(parsing: .unconditional, help: ArgumentHelp("A file with the payload; - is stdin.", valueName: "file"))
    var bodyFile: String?

    @Option(help: ArgumentHelp("How long each call may take. (default: 8)", valueName: "seconds"))
    var timeout: Seconds?

    @Option(name: .customLong("repeat"), help: "How many calls to make.")
    var count = 1

    @Option(help: "How many calls to have in flight at once.")
    var inFlight = 1

    @Flag(help: "Wait for a connection, within the timeout, instead of failing when there is none.")
    var wait = false

    @Option(
        help: ArgumentHelp(
            "Send a call that fails up to so many times again, within the timeout. Says that running it twice does no harm.",
            valueName: "n"
        )
    )
    var retries = 0

    @Flag(help: "Print what each call took, on stderr; with --json in its object.")
    var metrics = false

    @Flag(help: "Print an object a line: serial, type, status, ms, server, and body or (not UTF-8) bodyBase64.")
    var json = false

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var connection: ConnectionOptions

    func validate() throws {
        try FormatArgument.validate(type: self.type, in: self.format)
        guard self.body == nil || self.bodyFile == nil else {
            throw ValidationError("--body and --body-file exclude each other.")
        }
        guard self.count >= 1 else { throw ValidationError("--repeat is 1 or more, not \(self.count).") }
        guard self.retries >= 0 else { throw ValidationError("--retries is 0 or more, not \(self.retries).") }
        guard self.inFlight >= 1 else { throw ValidationError("--in-flight is 1 or more, not \(self.inFlight).") }
    }

    private func payload() throws -> ByteBuffer {
        guard let file = self.bodyFile else { return ByteBuffer(string: self.body ?? "") }
        do {
            let data =
                if file == "-" {
                    try FileHandle.standardInput.readToEnd() ?? Data()
                } else {
                    try Data(contentsOf: URL(fileURLWithPath: file))
                }
            return ByteBuffer(bytes: data)
        } catch {
            throw ValidationError("Cannot read \(file == "-" ? "stdin" : file): \(error.localizedDescription)")
        }
    }

    func run() async throws {
        Signals.ignoreBrokenPipes()
        let payload = try self.payload()
        let signals = Signals()
        var configuration = SocketClient.Configuration(servers: self.servers.endpoints)
        if let timeout = self.timeout { configuration.timeout = timeout.duration }
        configuration.socket.wireFormat = self.format
        try self.connection.apply(to: &configuration.socket)
        configuration.waitsForConnectivity = self.wait
        configuration.maximumInFlight = max(configuration.maximumInFlight, self.inFlight)
        configuration.maximumWaiting = max(configuration.maximumWaiting, self.inFlight)
        configuration.retryPolicy = RetryPolicy(maximumAttempts: min(self.retries, 1_000_000) + 1)
        // It is for a crowd of calls that a budget is there; here somebody has said how many.
        configuration.retryBudget = nil
        var request = SocketRequest(type: self.type, body: payload)
        request.isIdempotent = self.retries > 0
        let client = SocketClient(configuration: configuration)
        let calls = CallSequence(
            client: client,
            request: request,
            timeout: configuration.timeout,
            count: self.count,
            inFlight: self.inFlight
        )
        let interruption = Task { [stream = signals.stream] in
            var isFirst = true
            for await _ in stream {
                // A second signal means it.
                guard isFirst else { Self.exit(withError: ExitCode.failure) }
                isFirst = false
                calls.cancel()
            }
        }
        let printer = AnswerPrinter(type: self.type, json: self.json, metrics: self.metrics)
        let everythingIsFine = await calls.run { try printer.print($0) }
        interruption.cancel()
        self.connection.tell(client.history)
        if !everythingIsFine { throw ExitCode.failure }
    }
}
