// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import HHSocketTransfers

/// The options that `put` and `get` share.
struct TransferOptions: ParsableArguments {
    @Option(duration: "How long to try without progress, the first connection included. (default: 60s)")
    var timeout: Duration?

    @Option(parsing: .unconditionalSingleValue, help: MetadataArgument.help)
    var header: [MetadataArgument] = []

    @Option(help: TransferTypesArgument.help, transform: TransferTypesArgument.parse)
    var transferTypes: TransferTypes?

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var fields: FieldOptions

    func validate() throws {
        _ = try self.fields.header(in: self.format)
        try MetadataArgument.validate(self.header)
        try FormatArgument.requireHello(in: self.format)
        try TransferTypesArgument.validate(self.types, in: self.format)
    }

    private var types: TransferTypes { self.transferTypes ?? TransferTypes() }

    /// Performs the transfer that `begin` begins, and reports its state on stderr.
    ///
    /// - Parameters:
    ///   - label: The name of the transfer, for the progress bar.
    ///   - route: The options for the way to the server.
    ///   - connection: The options for the connection.
    ///   - outlastsSignals: Whether to wait for the transfer's end after it has been cancelled.
    ///
    /// - Returns: The result; nil if it failed, which has been reported.
    func run(
        _ label: String,
        to servers: ServerAddresses,
        by route: RouteOptions,
        over connection: ConnectionOptions,
        outlastsSignals: Bool = true,
        _ begin: (TransferClient) -> Transfer
    ) async throws -> TransferResult? {
        let signals = Signals()
        let client = SocketClient(configuration: try self.configuration(servers, by: route, over: connection))
        var options = TransferClient.Options()
        if let timeout = self.timeout { options.timeout = timeout }
        options.call.metadata = MetadataArgument.metadata(self.header)
        let transfer = begin(TransferClient(client, types: self.types, options: options))
        let interruption = CallCommand.interruption(signals) {
            transfer.cancel()
            guard !outlastsSignals else { return }
            // Its output may be blocked by a reader for ever.
            StandardError.report(TransferError(.cancelled, "\(label) was cancelled"))
            PutCommand.exit(withError: ExitCode.failure)
        }
        defer { interruption.cancel() }
        let bar = ProgressBar.following(label: label) {
            let progress = transfer.progress
            return ProgressBar.Progress(done: progress.completed, total: progress.total)
        }
        var changes = 0
        for await progress in transfer.progressUpdates { Self.reportChanges(progress, since: &changes) }
        let outcome = await Result.of { () async throws(TransferError) in try await transfer.value }
        Self.reportChanges(transfer.progress, since: &changes)
        await bar?.finish()
        // Flushes: a cancel reaches the server before the process ends.
        await client.close()
        connection.report(client.history)
        switch outcome {
        case .success(let result): return result
        case .failure(let error):
            StandardError.report(error)
            return nil
        }
    }

    private func configuration(
        _ servers: ServerAddresses,
        by route: RouteOptions,
        over connection: ConnectionOptions
    ) throws -> SocketClient.Configuration {
        var configuration = SocketClient.Configuration(servers: servers.endpoints)
        configuration.socket.wireFormat = self.format
        configuration.socket.header = try self.fields.header(in: self.format)
        configuration.streams = StreamPolicy()
        // Several attempts fit into the time of a transfer.
        let timeout = self.timeout ?? TransferClient.Options().timeout
        configuration.hello = HelloPolicy(isRequired: true, timeout: min(HelloPolicy().timeout, timeout / 3))
        configuration.socket.heartbeat = connection.heartbeatPolicy
        route.apply(to: &configuration.socket)
        return configuration
    }

    /// Reports that the data transferred before belonged to other content, and was discarded.
    private static func reportChanges(_ progress: TransferProgress, since changes: inout Int) {
        guard progress.changes > changes else { return }
        changes = progress.changes
        // In place of the progress bar, which is drawn again below.
        StandardError.line(StandardError.isTerminal ? "\r\u{1B}[Kchanged" : "changed")
    }
}
