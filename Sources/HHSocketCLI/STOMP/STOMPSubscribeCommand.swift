// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketSTOMP
import NIOCore

/// `hhsocket stomp subscribe`
struct STOMPSubscribeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "subscribe",
        abstract: "Print the messages of a destination.",
        discussion: """
            Prints each body on a line of stdout. With --ack client and client-individual a message is acknowledged when it \
            has been written; one that could not be written is delivered again.

            It ends after --count messages, on SIGINT or SIGTERM, or on an ERROR of the broker. If the connection is lost, \
            it reconnects.
            """
    )

    @OptionGroup var options: STOMPOptions

    @OptionGroup var route: RouteOptions

    @Option(
        help: .value("mode", "How messages are acknowledged: auto, client or client-individual. (default: auto)"),
        transform: Self.parseAckMode
    )
    var ack = STOMPAckMode.auto

    @Option(number: "End after this many messages.")
    var count: Int?

    @Flag(help: "Print messages as JSON: {\"headers\":{…},\"body\":…}, or bodyBase64 for one that is not UTF-8.")
    var json = false

    /// The largest number of messages that may be in transit and not acknowledged.
    private static let largestWindow = 256

    private static func parseAckMode(_ text: String) throws -> STOMPAckMode {
        guard let mode = STOMPAckMode(rawValue: text) else {
            throw ValidationError("expected auto, client or client-individual")
        }
        return mode
    }

    func validate() throws {
        _ = try Usage.checked { () throws(SocketError) in try self.options.configuration(self.route) }
        guard self.count.map({ $0 > 0 }) ?? true else { throw ValidationError("--count is 1 or more.") }
    }

    func run() async throws {
        let signals = Signals()
        var failure: StandardOutput.Failure?
        do throws(SocketError) {
            let client = STOMPClient(configuration: try self.options.configuration(self.route))
            let subscription = try client.subscribe(
                to: self.options.destination,
                ack: self.ack,
                window: self.ack == .auto ? nil : min(self.count ?? Self.largestWindow, Self.largestWindow),
                headers: self.options.headers
            )
            let events = client.events
            client.connect(attempts: 1)
            let printing = Task { await self.print(subscription) }
            let watching = Task { () -> SocketError? in
                var reason: SocketError?
                for await event in events {
                    Self.report(event)
                    guard case .connection(.gaveUp(let error)) = event else { continue }
                    // The subscription would wait for another attempt.
                    reason = error
                    printing.cancel()
                }
                return reason
            }
            let interrupting = Task { for await _ in signals.stream { printing.cancel() } }
            let printed = await printing.value
            interrupting.cancel()
            // What has happened by now is still reported.
            watching.cancel()
            let reason = await watching.value
            failure = try printed.get()
            if let reason { throw reason }
            // This confirms the acknowledgements.
            try await client.disconnect()
        } catch {
            StandardError.report(error)
            throw ExitCode.failure
        }
        if let failure, !failure.hasNoReader { throw failure }
    }

    /// Prints messages until there are enough, the task is cancelled or the output fails.
    ///
    /// - Returns: The failure of the output.
    private func print(_ subscription: STOMPSubscription) async -> Result<StandardOutput.Failure?, SocketError> {
        var printed = 0
        var messages = subscription.makeAsyncIterator()
        do throws(SocketError) {
            while printed < self.count ?? .max, !Task.isCancelled, let message = try await messages.next(isolation: nil)
            {
                do throws(StandardOutput.Failure) {
                    try StandardOutput.write(self.line(message))
                } catch {
                    // It is not acknowledged.
                    return .success(error)
                }
                printed += 1
                if self.ack != .auto { try await self.acknowledge(message) }
            }
        } catch {
            return .failure(error)
        }
        return .success(nil)
    }

    /// Acknowledges a printed message, even when the command was asked to end.
    private func acknowledge(_ message: STOMPMessage) async throws(SocketError) {
        let result = await withCheckedContinuation { waiter in message.ack { waiter.resume(returning: $0) } }
        do throws(SocketError) {
            try result.get()
        } catch  where error.code == .connectionLost {
            // It is delivered again.
            StandardError.report(error)
        }
    }

    private func line(_ message: STOMPMessage) -> ByteBuffer {
        guard self.json else {
            var line = message.body
            line.writeString("\n")
            return line
        }
        var headers = JSONLine()
        var names: Set<String> = []
        // The first of several counts.
        for (name, value) in message.headers where names.insert(name).inserted { headers.add(name, value) }
        var line = JSONLine()
        line.add("headers", object: headers)
        line.addBody(message.body)
        return ByteBuffer(string: line.line)
    }

    /// Reports a connection that was lost while another one is made.
    private static func report(_ event: STOMPEvent) {
        guard case .closed(let error?) = event, error.code != .brokerError else { return }
        StandardError.report(error)
    }
}
