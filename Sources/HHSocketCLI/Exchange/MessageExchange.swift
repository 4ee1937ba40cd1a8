// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A link whose messages a command sends and prints.
protocol ExchangedLink: ConnectionControl {
    associatedtype Message: Sendable
    associatedtype Event: Sendable

    var events: AsyncStream<Event> { get }
    /// Passes each message that arrives to `take`, or the error of one that cannot be read, until there are no more or
    /// `take` returns false.
    func receive(_ take: @Sendable (Result<Message, SocketError>) -> Bool) async
    /// Ends ``receive(_:)`` once the messages that have arrived were taken.
    func finishReceiving()
    /// Passes messages to `handler`, on the socket's thread, instead of ``receive(_:)``.
    func setHandler(_ handler: @escaping @Sendable (Message) -> Void)

    func send(_ message: Message) async throws(SocketError)
    func send(_ message: Message, completion: (@Sendable (Result<Void, SocketError>) -> Void)?)
    func waitUntilClosed() async

    /// The message of a line of standard input.
    static func message(ofInput text: ByteBuffer) -> Message
    static func content(of message: Message) -> ExchangedContent
    static func news(of event: Event) -> ExchangeNews
}

/// The content of a message, as it is printed.
enum ExchangedContent {
    case text(ByteBuffer)
    case binary(ByteBuffer)
}

/// An event of a link, as far as a command reports it.
enum ExchangeNews {
    case attemptFailed(SocketError)
    /// The server has ended an open connection in order; another one may follow.
    case closedByServer(WebSocketClosure)
    case lost(SocketError)
    /// No attempt follows, after the server's close frame if there was one.
    case gaveUp(WebSocketClosure?)
    case nothing
}

/// The exchange of messages of one run of `hhsocket ws` or `hhsocket lines`.
final class MessageExchange<Link: ExchangedLink>: Sendable {
    enum Source: Sendable {
        case standardInput
        case messages([Link.Message])
    }

    struct Options: Sendable {
        /// Whether there is one attempt and one connection.
        var isOnce = false
        /// The number of messages, printed or sent back, after which to end.
        var count: Int?
        /// Whether messages are sent back instead of printed.
        var echoes = false
        var printsJSON = false
    }

    /// The reason for the end of the command.
    private enum End: Sendable {
        /// Everything was sent, or as many messages arrived as were requested.
        case complete
        case signal
        case closedByServer(UInt16)
        case failed
    }

    private struct Progress {
        /// The number of messages that were printed or sent back.
        var handled = 0
        /// Whether a message may not have arrived, or was not sent.
        var hasLost = false
        /// Whether all of the input has been sent.
        var hasSentAll = false
        /// Whether no attempt can succeed with an argument of the command.
        var isUsageWrong = false
        /// The failure of the output, which ends the exchange.
        var outputFailure: StandardOutput.Failure?
    }

    private let options: Options
    private let progress = NIOLockedValueBox(Progress())
    private let ends = AsyncStream<End>.makeStream()

    init(_ options: Options) {
        self.options = options
    }

    /// - Returns: The exit code.
    func run(
        _ input: Source,
        on opened: Link,
        _ signals: AsyncStream<CInt>
    ) async throws(StandardOutput.Failure) -> Int32 {
        if self.options.echoes { self.echo(on: opened) }
        let events = opened.events
        let printing = Task { await self.print(from: opened) }
        let watching = Task { for await event in events { self.happened(event) } }
        opened.connect()
        let sending = Task { [opened] in
            guard await self.send(input, on: opened) else { return }
            self.progress.withLockedValue { $0.hasSentAll = true }
            if self.options.count == nil { self.end(.complete) }
        }
        let interrupting = Task {
            for await _ in signals { self.end(.signal) }
        }
        let end = await self.ends.stream.first { _ in true }
        sending.cancel()
        interrupting.cancel()
        opened.disconnect()
        await self.waitUntilClosed(opened)
        // Messages that arrived before the end of the connection are still printed.
        opened.finishReceiving()
        await printing.value
        // Reading standard input cannot be cancelled.
        if case .messages = input { await sending.value }
        // What has happened by now is still reported.
        watching.cancel()
        await watching.value
        if let failure = self.progress.withLockedValue({ $0.outputFailure }), !failure.hasNoReader { throw failure }
        return self.exitCode(end)
    }

    private func exitCode(_ end: End?) -> Int32 {
        let progress = self.progress.withLockedValue { $0 }
        guard !progress.isUsageWrong else { return ExitCode.validationFailure.rawValue }
        // The end of the connection may have been reported before its last messages were printed.
        let isComplete = self.options.count.map { progress.handled >= $0 } ?? progress.hasSentAll
        switch end {
        case .signal: return 0
        case .complete, nil: return progress.hasLost ? 1 : 0
        case .closedByServer(let code):
            let isOrderly = code == 1_000 && self.options.count == nil
            return (isComplete || isOrderly) && !progress.hasLost ? 0 : 1
        case .failed:
            return isComplete && !progress.hasLost ? 0 : 1
        }
    }

    /// The server has a second for its part of the end.
    private func waitUntilClosed(_ link: Link) async {
        // A task group would wait for both.
        let (ends, continuation) = AsyncStream<Void>.makeStream()
        Task {
            await link.waitUntilClosed()
            continuation.finish()
        }
        let limit = Task {
            try? await Task.sleep(for: .seconds(1))
            continuation.finish()
        }
        for await _ in ends {}
        limit.cancel()
    }

    private func end(_ end: End) {
        self.ends.continuation.yield(end)
    }

    // MARK: Sending

    /// - Returns: Whether all was sent, or reported as not sent.
    private func send(_ input: Source, on link: Link) async -> Bool {
        switch input {
        case .messages(let messages):
            for message in messages {
                guard await self.send(message, on: link) else { return false }
            }
        case .standardInput:
            do throws(Input.Failure) {
                return try await self.send(InputLines(), on: link)
            } catch {
                StandardError.line("error: \(error)")
                self.progress.withLockedValue { $0.hasLost = true }
                self.end(.failed)
                return false
            }
        }
        return true
    }

    private func send(_ lines: InputLines, on link: Link) async throws(Input.Failure) -> Bool {
        while !Task.isCancelled, let line = try await lines.next() {
            guard !Task.isCancelled else { return false }
            guard case .bytes(let text) = line else {
                self.refuse("a line of standard input is longer than \(InputLines.maximumLength >> 20) MiB")
                continue
            }
            if text.isUTF8 {
                guard await self.send(Link.message(ofInput: text), on: link) else { return false }
            } else {
                self.refuse("a line of standard input is not UTF-8")
            }
        }
        return true
    }

    /// Reports a line that is not sent.
    private func refuse(_ reason: String) {
        StandardError.report(SocketError.invalid(reason))
        self.progress.withLockedValue { $0.hasLost = true }
    }

    /// - Returns: False if the command has ended meanwhile.
    private func send(_ message: Link.Message, on link: Link) async -> Bool {
        do throws(SocketError) {
            try await link.send(message)
        } catch {
            guard !Task.isCancelled else { return false }
            self.progress.withLockedValue { $0.hasLost = true }
            // The reason why there is no connection is reported as an event.
            if error.code != .noServerReachable, error.code != .handshakeRefused { StandardError.report(error) }
        }
        return true
    }

    // MARK: Receiving

    private func echo(on link: Link) {
        link.setHandler { [weak link] message in
            guard let link else { return }
            guard self.options.count != nil else { return link.send(message, completion: nil) }
            link.send(message) { result in
                if case .success = result { self.handledOne() }
            }
        }
    }

    private func handledOne() {
        let count = self.progress.withLockedValue { progress in
            progress.handled += 1
            return progress.handled
        }
        if count == self.options.count { self.end(.complete) }
    }

    private func print(from link: Link) async {
        await link.receive { result in
            if let count = self.options.count, self.progress.withLockedValue({ $0.handled }) >= count { return false }
            do throws(SocketError) {
                let line = self.line(Link.content(of: try result.get()))
                do throws(StandardOutput.Failure) {
                    try StandardOutput.write(line)
                } catch {
                    self.progress.withLockedValue { $0.outputFailure = error }
                    self.end(.complete)
                    return false
                }
                self.handledOne()
            } catch {
                StandardError.report(error)
            }
            return true
        }
    }

    private func line(_ content: ExchangedContent) -> ByteBuffer {
        switch content {
        case .text(let text):
            guard self.options.printsJSON else {
                var line = text
                line.writeString("\n")
                return line
            }
            return self.json("text", name: "text", value: String(buffer: text))
        case .binary(let bytes):
            return self.options.printsJSON
                ? self.json("binary", name: "base64", value: bytes.base64) : ByteBuffer(string: bytes.base64 + "\n")
        }
    }

    private func json(_ kind: String, name: String, value: String) -> ByteBuffer {
        var line = JSONLine()
        line.add("kind", kind)
        line.add(name, value)
        return ByteBuffer(string: line.line)
    }

    // MARK: Events

    private func happened(_ event: Link.Event) {
        switch Link.news(of: event) {
        case .attemptFailed(let error):
            StandardError.report(error)
            if (error.underlying as? OpeningError)?.isInvalidArgument == true {
                self.progress.withLockedValue { $0.isUsageWrong = true }
                self.end(.failed)
            } else if self.options.isOnce || error.code == .invalidArgument {
                // No attempt succeeds with such a setting.
                self.end(.failed)
            }
        case .closedByServer(let closure):
            StandardError.line("\(closure)".inOneLine)
            if self.options.isOnce { self.end(.closedByServer(closure.code)) }
        case .lost(let error):
            StandardError.report(error)
            if self.options.isOnce { self.end(.failed) }
        case .gaveUp(let closure):
            self.end(closure.map { .closedByServer($0.code) } ?? .failed)
        case .nothing:
            break
        }
    }
}
