// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket
import HHSocketOperations
import HHSocketServer
import HHSocketSystem
import Logging
import NIOConcurrencyHelpers
import NIOCore

struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serve a few built-in requests.",
        discussion: """
            Types: 1000 echoes the payload; 1001 sleeps for the payload's decimal milliseconds (an hour at most), then \
            echoes it; 1002 answers with the status that the payload names in decimal; 1003 answers with the payload's \
            SHA-256 in hex; 1004 decodes the message of `bench --api typed` and encodes it again; 1005 answers with the \
            request's serial and, after hello, its deadline, idempotency key and metadata, one per line. A payload that \
            1001 or 1002 cannot read is answered with status 303, one that 1004 cannot with 402. Types that a --format \
            does not leave to applications are not served, which is reported on stderr.

            Streams, which need hello: 1010 takes COUNT SIZE in decimal, with one space, and streams COUNT items of SIZE \
            bytes `x` (16777216 at most; anything else is answered with status 303); 1011 takes a stream and answers with \
            COUNT BYTES SHA256HEX of its items' bytes one after the other; 1012 echoes item by item; 1013 takes a stream \
            and answers with COUNT BYTES. With --store, `put` and `get` transfer files, over streams too.

            Once connections are accepted, stdout has one line per listener: first that of --host and --port, then those \
            of --listen in their order, with the picked port in place of 0. Nothing else is printed there. SIGINT \
            and SIGTERM tell clients to go away and let requests in flight finish, for --grace at most; a second signal \
            ends the server immediately. SIGHUP reloads the certificate of --cert; without one it is ignored.
            """
    )

    @Option(
        help: """
            The address to listen on; unix:PATH is a Unix domain socket, fd:NUMBER a socket that listens already, such as \
            fd:3, the first that systemd passes.
            """
    )
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 picks a free one.")
    var port = 7000

    @Option(
        help: .value(
            "address",
            """
            A further address to listen on: HOST:PORT, with an IPv6 address in brackets, unix:PATH, fd:NUMBER, \
            ws://HOST[:PORT]/PATH for WebSockets, or tcp+ws://HOST[:PORT]/PATH for both on one port; port 0 picks a \
            free one. May be given several times. All listeners have the same TLS and format.
            """
        )
    )
    var listen: [ListenAddress] = []

    @Option(help: .value("type:text", "Push TEXT to every client periodically."))
    var push: PushText?

    @Option(duration: "The interval of --push. (default: 1s)")
    var pushEvery: Duration?

    @Option(duration: "The silence after which a client is pinged. (default: no pings)")
    var ping: Duration?

    @Option(
        parsing: .unconditional,
        help: .value(
            "format",
            "The line per listener on stdout: %h is the host, %p the port, %% a percent sign. (default: "
                + "listening on HOST:PORT)"
        )
    )
    var announce: String?

    @OptionGroup var input: EndOfInputOption

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @Flag(help: "Answer the requests of each connection in the order in which they arrived.")
    var answersInOrder = false

    @Option(
        help: """
            How type \(BuiltIn.echo) is answered. synchronous: at once, on the connection's thread. connection: in a task there. \
            global: in a task on Swift's thread pool.
            """
    )
    var echoHandler = BuiltIn.EchoHandler.synchronous

    @Flag(help: "Serve only clients that have said hello; requests of others are answered with status 303.")
    var requireHello = false

    @Option(
        number: "The number of event loops, each a thread that connections get in turn. (default: one for each core)"
    )
    var eventLoops: Int?

    @Option(help: LogArgument.help, transform: LogArgument.parse)
    var log: Logger.Level?

    @OptionGroup(title: "Limits") var limits: LimitOptions

    @OptionGroup(title: "Monitoring") var monitoring: MonitoringOptions

    @OptionGroup(title: "Store") var store: StoreOptions

    @OptionGroup(title: "Proxies") var proxies: ServerProxyOptions

    @OptionGroup(title: "Shutdown") var shutdown: ShutdownOptions

    @OptionGroup(title: "TLS") var tls: ServerTLSOptions

    /// The listener of `--host` and `--port`; nil if the host is not one.
    private var first: ServerListener? {
        guard self.host.hasPrefix("unix:") || self.host.hasPrefix("fd:") else {
            return ServerListener(host: self.host, port: self.port)
        }
        return ListenAddress(argument: self.host)?.listener
    }

    func validate() throws {
        guard self.first != nil else {
            throw ValidationError(
                self.host.hasPrefix("fd:") ? "--host fd:NUMBER needs a number." : "--host unix:PATH needs a path."
            )
        }
        if let push = self.push {
            try require(self.format.layout.push != nil, "The format \(self.format) has no pushes.")
            try FormatArgument.validate(type: push.type, in: self.format)
        }
        guard self.ping == nil || self.format.serverPing != nil else {
            throw ValidationError("In the format \(self.format) servers do not ping.")
        }
        try require((0...65_535).contains(self.port), "--port is a number from 0 to 65535, not \(self.port).")
        if self.requireHello { try FormatArgument.requireHello(in: self.format) }
        try self.store.validate(in: self.format)
        guard self.tls.tls != nil || !self.listen.contains(where: { $0.isSecure }) else {
            throw ValidationError("--listen wss://… requires --cert and --key.")
        }
        if let count = self.eventLoops, !(1...1_024).contains(count) {
            throw ValidationError("--event-loops is a number from 1 to 1024, not \(count).")
        }
        try require(self.pushEvery == nil || self.push != nil, "--push-every requires --push TYPE:TEXT.")
    }

    func run() async throws {
        let signals = Signals()
        let hasInputFailed = self.input.watch(signals)
        // Also without TLS: by default the signal would end the process. Also if it was ignored, as by nohup, because
        // it is also the request to reload the certificate, and never ends the server.
        let hangUps = Signals([SIGHUP], ignoredToo: true)
        var (router, omitted) = BuiltIn.router(for: self.format, echo: self.echoHandler)
        if !omitted.isEmpty {
            let types = self.format.layout.applicationTypes
            StandardError.line(
                """
                note: types not served: \(omitted.map { "\($0)" }.joined(separator: ", ")); the format \(self.format) leaves \
                types from \(types.lowerBound) to \(types.upperBound) to applications
                """
            )
        }
        try self.store.register(on: &router)
        var configuration = self.configuration
        let metrics = self.monitoring.metrics(&configuration, &router)
        let server = SocketServer(configuration: configuration, router: router)
        let monitoring: MonitoringEndpoint?
        do {
            monitoring = try await self.monitoring.start(server, metrics)
            try await server.start()
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
        let isAnnounced = AnnounceOptions.announce(
            zip(server.configuration.listeners, server.addresses).map { self.announcement(of: $1, $0) + "\n" }.joined()
        )

        let pushing = Task { [push, pushEvery] in
            guard let push else { return }
            while !Task.isCancelled {
                try await Task.sleep(for: pushEvery ?? .seconds(1))
                await server.push(type: push.type, body: push.body)
            }
        }
        let reloading = Task { [stream = hangUps.stream, hasTLS = self.tls.tls != nil] in
            for await _ in stream {
                guard hasTLS else {
                    StandardError.line("SIGHUP is ignored: the server has no certificate to reload")
                    continue
                }
                Self.reload(server)
            }
        }
        var signalled = signals.stream.makeAsyncIterator()
        _ = await signalled.next()
        let ended = Task {
            await server.shutdown()
        }
        let secondSignal = Task { [stream = signals.stream] in
            for await _ in stream { await server.shutdown(gracePeriod: .zero) }
        }
        await ended.value
        await monitoring?.shutdown()
        secondSignal.cancel()
        reloading.cancel()
        pushing.cancel()
        guard isAnnounced, !hasInputFailed.withLockedValue({ $0 }) else { throw ExitCode.failure }
    }

    private var configuration: SocketServer.Configuration {
        let listeners = ([self.first].compactMap { $0 } + self.listen.map(\.listener)).map { listener in
            var listener = listener
            listener.tls = self.tls.tls
            listener.wireFormat = self.format
            listener.proxies = self.proxies.proxies
            return listener
        }
        var configuration = SocketServer.Configuration(
            listeners: listeners,
            limits: self.limits.limits,
            heartbeat: self.ping.map { HeartbeatPolicy(interval: $0) }
        )
        configuration.eventLoops = self.eventLoops
        configuration.answersInOrder = self.answersInOrder
        configuration.hello.isRequired = self.requireHello
        configuration.shutdown = self.shutdown.policy
        configuration.logger = LogArgument.logger(self.log)
        return configuration
    }

    private static func reload(_ server: SocketServer) {
        do throws(SocketError) {
            try server.reloadTLS()
            StandardError.line("the certificate was reloaded")
        } catch {
            StandardError.line("error: \(error.code): \(error.message.inOneLine); the old certificate stays")
        }
    }

    private func announcement(of address: Endpoint, _ listener: ServerListener) -> String {
        guard let format = self.announce else { return "listening on \(Self.name(of: address, listener))" }
        return Self.announcement(format, address)
    }

    /// The address in the form of `--listen`.
    private static func name(of address: Endpoint, _ listener: ServerListener) -> String {
        guard let webSocket = listener.webSocket, webSocket.sharesPort else { return address.description }
        return "tcp+\(Endpoint(address, isSecure: listener.tls != nil, path: webSocket.path ?? "/"))"
    }

    static func announcement(_ format: String, _ address: Endpoint) -> String {
        var result = ""
        var rest = Substring(format)
        while let percent = rest.firstIndex(of: "%") {
            result += rest[..<percent]
            rest = rest[rest.index(after: percent)...]
            switch rest.first {
            case "h": result += address.unixPath ?? address.host
            case "p": result += String(address.port)
            case "%": result += "%"
            default:
                result += "%"
                continue
            }
            rest.removeFirst()
        }
        return result + rest
    }
}
