import Foundation
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The exchange of messages of one run of `hhsocket ws`.
final class WebSocketExchange: Sendable {
    enum Input: Sendable {
        case standardInput
        case messages([WebSocketMessage])
    }

    /// The reason for the end of the command.
    private enum End: Sendable {
        /// All has left, or as many messages as were asked for.
        case complete
        case signal
        case closedByServer(UInt16)
        case failed
    }

    private let isOnce: Bool
    private let count: Int?
    private let echoes: Bool
    private let printsJSON: Bool
    private let configuration: WebSocketLink.Configuration
    /// Whether a message may not have arrived, or was not sent.
    private let hasLost = NIOLockedValueBox(false)
    private let handled = NIOLockedValueBox(0)
    private let ends = AsyncStream<End>.makeStream()

    init(
        _ configuration: WebSocketLink.Configuration,
        isOnce: Bool,
        count: Int?,
        echoes: Bool,
        printsJSON: Bool
    ) {
        self.configuration = configuration
        self.isOnce = isOnce
        self.count = count
        self.echoes = echoes
        self.printsJSON = printsJSON
    }

    /// - Returns: The exit code.
    func run(_ input: Input, _ signals: AsyncStream<CInt>) async -> Int32 {
        let opened = WebSocketLink(configuration: self.configuration)
        if self.echoes { self.echo(on: opened) }
        let (messages, events) = (opened.messages, opened.events)
        let printing = Task { await self.print(messages) }
        let watching = Task { for await event in events { self.happened(event) } }
        opened.connect()
        let sending = Task { [opened] in
            await self.send(input, on: opened)
            if self.count == nil { self.end(.complete) }
        }
        let interrupting = Task {
            for await _ in signals { self.end(.signal) }
        }
        let end = await self.ends.stream.first { _ in true }
        sending.cancel()
        interrupting.cancel()
        opened.disconnect()
        await self.waitUntilClosed(opened)
        // What came before the close frame is still printed.
        opened.finishMessages()
        await printing.value
        watching.cancel()
        switch end {
        case .signal: return 0
        case .complete, nil: return self.hasLost.withLockedValue { $0 } ? 1 : 0
        case .closedByServer(let code):
            return code == 1_000 && self.count == nil && !self.hasLost.withLockedValue { $0 } ? 0 : 1
        case .failed: return 1
        }
    }

    /// The server has a second for its part of the closing handshake.
    private func waitUntilClosed(_ link: WebSocketLink) async {
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

    private func send(_ input: Input, on link: WebSocketLink) async {
        switch input {
        case .messages(let messages):
            for message in messages { await self.send(message, on: link) }
        case .standardInput:
            let lines = InputLines()
            while !Task.isCancelled, let line = await lines.next() {
                guard !Task.isCancelled else { return }
                guard case .bytes(let bytes) = line else {
                    self.refuse("a line of standard input is longer than \(InputLines.maximumLength >> 20) MiB")
                    continue
                }
                let payload = ByteBuffer(bytes: bytes)
                if payload.validUTF8 == nil {
                    self.refuse("a line of standard input is not UTF-8")
                } else {
                    await self.send(WebSocketMessage(.text, payload), on: link)
                }
            }
        }
    }

    /// Reports a line that is not sent.
    private func refuse(_ reason: String) {
        self.report(SocketError(.invalidArgument, message: reason))
        self.hasLost.withLockedValue { $0 = true }
    }

    private func send(_ message: WebSocketMessage, on link: WebSocketLink) async {
        do throws(SocketError) {
            try await link.send(message)
        } catch {
            guard !Task.isCancelled else { return }
            self.hasLost.withLockedValue { $0 = true }
            // Why there is no connection was told already.
            if error.code != .noServerReachable, error.code != .handshakeRefused { self.report(error) }
        }
    }

    private func report(_ error: SocketError) {
        StandardError.line("error: \(error.code): \(error.message.inOneLine)")
    }

    // MARK: Receiving

    private func echo(on link: WebSocketLink) {
        link.setMessageHandler { [weak link] message in
            guard let link else { return }
            guard self.count != nil else { return link.send(message, completion: nil) }
            link.send(message) { result in
                if case .success = result { self.handledOne() }
            }
        }
    }

    private func handledOne() {
        let count = self.handled.withLockedValue { handled in
            handled += 1
            return handled
        }
        if count == self.count { self.end(.complete) }
    }

    private func print(_ messages: WebSocketMessages) async {
        for await message in messages {
            if let count = self.count, self.handled.withLockedValue({ $0 }) >= count { return }
            do throws(StandardOutput.Closed) {
                try StandardOutput.write(self.line(message))
            } catch {
                // The output is closed.
                return self.end(.complete)
            }
            self.handledOne()
        }
    }

    private func line(_ message: WebSocketMessage) -> ByteBuffer {
        if self.printsJSON {
            var line = JSONLine()
            line.add("kind", message.kind == .text ? "text" : "binary")
            if let text = message.text { line.add("text", text) } else { line.add("base64", message.payload.base64) }
            return ByteBuffer(string: line.line)
        }
        var line = message.kind == .text ? message.payload : ByteBuffer(string: message.payload.base64)
        line.writeString("\n")
        return line
    }

    // MARK: Events

    private func happened(_ event: WebSocketLink.Event) {
        switch event {
        case .opened: break
        case .closed(let closure): self.closed(closure)
        case .connection(.connectFailed(let error)):
            self.report(error)
            // No attempt succeeds with such a header field or subprotocol.
            if self.isOnce || error.code == .invalidArgument { self.end(.failed) }
        case .connection(.gaveUp(let error)):
            let code = (error.underlying as? WebSocketClosure)?.code
            self.end(code.map { .closedByServer($0) } ?? .failed)
        case .connection: break
        }
    }

    private func closed(_ closure: WebSocketLink.Closure) {
        guard let error = closure.error else { return }
        if closure.wasClean {
            StandardError.line("\(WebSocketClosure(code: closure.code, reason: closure.reason))".inOneLine)
            if self.isOnce { self.end(.closedByServer(closure.code)) }
        } else {
            self.report(error)
            if self.isOnce { self.end(.failed) }
        }
    }
}
