// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A link of the bench to a server that sends messages back.
final class EchoConnection<Link: BenchedLink>: @unchecked Sendable {
    // Proof of Sendable: constants are Sendable; the variables are used only on the socket's thread.

    let link: Link
    /// The loop of the socket's thread.
    let eventLoop: any EventLoop
    let body: EchoBody
    /// Takes the messages. A link passes those of a connection to the handler that it had when that was made.
    private var take: (ByteBuffer) -> Void = { _ in }
    /// Is called with the first failure of the link.
    private var onFailure: (EchoFailure) -> Void = { _ in }
    private var failure: EchoFailure?

    init(_ link: Link, on eventLoop: any EventLoop, sending body: EchoBody) {
        self.link = link
        self.eventLoop = eventLoop
        self.body = body
    }

    /// Connects, and has a first message sent back.
    func open() async throws {
        let (answers, continuation) = AsyncStream.makeStream(of: Result<ByteBuffer, EchoFailure>.self)
        self.eventLoop.execute {
            self.receive({ continuation.yield(.success($0)) }, onFailure: { continuation.yield(.failure($0)) })
        }
        self.link.setHandler { message in
            switch Link.content(of: message) {
            case .text(let bytes), .binary(let bytes): self.take(bytes)
            }
        }
        let events = self.link.events
        Task { for await event in events { self.eventLoop.execute { self.happened(event) } } }
        self.link.connect()
        self.send(self.body.template)
        guard let answer = try await answers.first(where: { _ in true })?.get() else {
            throw EchoFailure("interrupted before anything was measured")
        }
        guard answer == self.body.template else { throw EchoFailure(self.body.reason(about: answer, number: 0)) }
    }

    /// Passes messages from now on, and the failure, even if it has occurred before. On the socket's thread.
    func receive(_ take: @escaping (ByteBuffer) -> Void, onFailure: @escaping (EchoFailure) -> Void) {
        self.take = take
        self.onFailure = onFailure
        if let failure = self.failure { onFailure(failure) }
    }

    @inline(__always)
    func send(_ bytes: ByteBuffer) {
        // One that cannot be sent ends the link, whose limits allow for all.
        self.link.send(Link.message(ofInput: bytes), completion: nil)
    }

    func close() async {
        self.link.disconnect()
        await self.link.waitUntilClosed()
    }

    private func happened(_ event: Link.Event) {
        switch Link.news(of: event) {
        case .attemptFailed(let error), .lost(let error): self.failed(EchoFailure(error))
        case .closedByServer(let closure): self.failed(EchoFailure("the server closed the connection: \(closure)"))
        case .gaveUp, .nothing: break
        }
    }

    private func failed(_ failure: EchoFailure) {
        guard self.failure == nil else { return }
        self.failure = failure
        self.onFailure(failure)
    }
}
