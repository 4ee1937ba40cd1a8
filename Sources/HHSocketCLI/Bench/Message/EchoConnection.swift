// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A link of the bench to a server that sends messages back.
final class EchoConnection<Link: BenchedLink>: Sendable {
    let link: Link
    /// The loop of the socket's thread.
    let eventLoop: any EventLoop
    let body: EchoBody
    /// Is called with the first failure of the link. Any thread.
    private let onFailure = NIOLockedValueBox<(@Sendable (EchoFailure) -> Void)?>(nil)

    init(_ link: Link, on eventLoop: any EventLoop, sending body: EchoBody) {
        self.link = link
        self.eventLoop = eventLoop
        self.body = body
    }

    /// Connects, and has a first message sent back.
    func open() async throws {
        let (answers, continuation) = AsyncStream.makeStream(of: Result<ByteBuffer, EchoFailure>.self)
        self.receive({ continuation.yield(.success($0)) }, onFailure: { continuation.yield(.failure($0)) })
        let events = self.link.events
        Task { for await event in events { self.happened(event) } }
        self.link.connect()
        self.send(self.body.template)
        guard let answer = try await answers.first(where: { _ in true })?.get() else {
            throw EchoFailure("interrupted before anything was measured")
        }
        guard answer == self.body.template else { throw EchoFailure(self.body.reason(about: answer, number: 0)) }
    }

    /// Passes messages on the socket's thread from now on.
    func receive(
        _ take: @escaping @Sendable (ByteBuffer) -> Void,
        onFailure: @escaping @Sendable (EchoFailure) -> Void
    ) {
        self.onFailure.withLockedValue { $0 = onFailure }
        self.link.setHandler { message in
            switch Link.content(of: message) {
            case .text(let bytes), .binary(let bytes): take(bytes)
            }
        }
    }

    @inline(__always)
    func send(_ bytes: ByteBuffer) {
        // One that cannot be sent ends the link, whose limits allow for all.
        self.link.send(Link.message(ofInput: bytes), completion: nil)
    }

    func close() async {
        self.onFailure.withLockedValue { $0 = nil }
        self.link.disconnect()
        await self.link.waitUntilClosed()
    }

    private func happened(_ event: Link.Event) {
        let failure: EchoFailure
        switch Link.news(of: event) {
        case .attemptFailed(let error), .lost(let error): failure = EchoFailure(error)
        case .closedByServer(let closure): failure = EchoFailure("the server closed the connection: \(closure)")
        case .gaveUp, .nothing: return
        }
        self.onFailure.withLockedValue { $0.take() }?(failure)
    }
}
