// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import NIOCore

struct ListenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "listen",
        abstract: "Print pushes, one per line.",
        discussion: """
            A line is the push's type and its text; control characters and backslashes are escaped, and bytes that are \
            not UTF-8 are printed as `base64:` and their Base64. The command reconnects for as long as it runs, and reports \
            the connection's state on stderr.

            With --proto, pushes whose type is that of a message in the file are printed in protobuf's JSON.

            With --call it makes calls on each new connection, such as a login and a subscription. If one of them fails, but \
            not since its connection was lost, the command ends with exit code 1.
            """
    )

    @Argument(help: ServerAddresses.help)
    var servers: ServerAddresses

    @Option(help: "Print only pushes of this type.", transform: TypeArgument.parse)
    var type: UInt32?

    @Option(
        name: .customLong("call"),
        parsing: .unconditionalSingleValue,
        help: .value(
            "call",
            """
            A call to make on each new connection: TYPE:TEXT, or with --proto SERVICE/METHOD:JSON. May be given several \
            times; each waits for the answer of the one before.
            """
        )
    )
    var calls: [CallText] = []

    @Option(number: "The number of pushes after which to exit.")
    var count: Int?

    @Flag(
        help: """
            Print one object per line: type, serial, status, server, and body or, if not UTF-8, bodyBase64; with --proto \
            message.
            """
    )
    var json = false

    @OptionGroup var proto: ProtoOptions

    @Flag(help: "Perform the hello handshake, and fail if the server refuses it. Implied by --token.")
    var hello = false

    @Option(parsing: .unconditional, help: TokenArgument.help, transform: TokenArgument.parse)
    var token: [UInt8]?

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var fields: FieldOptions

    @OptionGroup var connection: ConnectionOptions

    @OptionGroup var route: RouteOptions

    private var saysHello: Bool { self.hello || self.token != nil }

    func validate() throws {
        _ = try self.fields.header(in: self.format)
        if let type = self.type { try FormatArgument.validate(type: type, in: self.format) }
        try require(self.format.layout.push != nil, "The format \(self.format) has no pushes to listen for.")
        if self.saysHello { try FormatArgument.requireHello(in: self.format) }
        if let count = self.count, count < 1 { throw ValidationError("--count is 1 or more, not \(count).") }
    }

    func run() async throws {
        let schema = try self.proto.schema()
        let messages = schema.map { PushMessages($0) }
        let firstCalls = try FirstCalls(self.calls, schema: schema, format: self.format)
        let signals = Signals()
        var configuration = SocketClient.Configuration(servers: self.servers.endpoints)
        configuration.socket.wireFormat = self.format
        configuration.socket.header = try self.fields.header(in: self.format)
        if self.saysHello { configuration.hello = HelloPolicy(isRequired: true) }
        if let token = self.token { configuration.hello?.sessionToken = { token } }
        configuration.socket.heartbeat = self.connection.heartbeatPolicy
        self.route.apply(to: &configuration.socket)
        let client = SocketClient(configuration: configuration)
        // More than a slow reader should ever fall behind.
        let buffering = PushBufferingPolicy.dropOldest(1 << 16)
        let pushes =
            if let type = self.type {
                client.pushes(ofType: type, buffering: buffering)
            } else {
                client.pushes(buffering: buffering)
            }
        let events = client.events
        let hint = SilenceHint.text(self.format, missing: "push")
        let watching = Task { [isVerbose = self.connection.verbose] in
            var dropped = DroppedFrames()
            while isVerbose, !Task.isCancelled {
                // The error is ignored: when cancelled, a last report follows.
                try? await Task.sleep(for: .seconds(1))
                if let news = dropped.news(client.statistics) { StandardError.line(news) }
            }
        }
        client.connect()
        let printing = Task {
            [count, json, serial = self.format.layout.push?.serial ?? FrameSerial.push]
            () -> StandardOutput.Failure? in
            var printed = 0
            for await push in pushes {
                let line = Self.line(for: push, message: messages?.json(push), serial: serial, json: json)
                do throws(StandardOutput.Failure) {
                    try StandardOutput.write(line)
                } catch {
                    return error
                }
                printed += 1
                if printed == count { break }
            }
            return nil
        }
        let interruption = Task { [stream = signals.stream] in
            for await _ in stream { printing.cancel() }
        }
        let reporting = Task { [hint] in
            var (hint, isOver) = (hint, false)
            for await event in events {
                Self.report(event)
                switch event {
                // Pushes are printed meanwhile.
                case .connected, .switched: if await !firstCalls.run(on: client) { isOver = true }
                case .disconnected:
                    if let text = hint, client.statistics.pushes == 0 {
                        StandardError.line(text)
                        hint = nil
                    }
                case .gaveUp: isOver = true
                // No attempt succeeds with such a setting.
                case .connectFailed(let error): isOver = isOver || error.code == .invalidArgument
                default: break
                }
                // No more pushes will arrive.
                if isOver { printing.cancel() }
            }
            return isOver
        }
        let failure = await printing.value
        interruption.cancel()
        // What has happened by now is still reported.
        reporting.cancel()
        let isOver = await reporting.value
        await client.close()
        watching.cancel()
        await watching.value
        self.connection.report(client.history)
        if let failure, !failure.hasNoReader { throw failure }
        if isOver { throw ExitCode.failure }
    }

    /// Returns the line for a push.
    ///
    /// - Parameter message: The push as a message, if it is known.
    static func line(for push: SocketPush, message: JSONValue? = nil, serial: UInt32, json: Bool) -> String {
        guard json else {
            if let message { return "\(push.type) \(message.text())\n" }
            let text = push.body.utf8Text.map(\.escaped) ?? "base64:\(push.body.base64)"
            return "\(push.type) \(text)\n"
        }
        var object = JSONLine()
        object.add("type", push.type)
        object.add("serial", serial)
        object.add("status", push.status.rawValue)
        object.add("server", push.endpoint.description)
        if let message { object.add("message", message) } else { object.addBody(push.body) }
        return object.line
    }

    private static func report(_ event: SocketEvent) {
        switch event {
        case .connected(let endpoint): StandardError.line("connected to \(endpoint)")
        case .goAway, .switched: StandardError.line("\(event)")
        case .disconnected(let error), .connectFailed(let error), .gaveUp(let error):
            StandardError.report(error)
        default: break
        }
    }
}
