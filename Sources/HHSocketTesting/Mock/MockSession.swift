// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a ``MockPeer``: its reactions, and the WebSocket if it has one. Subclasses implement the wires.
/// Confined to the server's event loop.
class MockSession<Wire: MockWire>: MockLine, MockPerformer {
    typealias Sending = MockSending<Wire.Output>
    typealias Received = Wire.Received
    typealias Steps = ArraySlice<MockStep<Wire>>

    private var server: MockParts<Wire>?
    private var webSocket: MockCarriage?
    private var hasFailed = false

    /// The server; nil once the connection is closed, so that a reference to a connection does not keep the server.
    final var parts: MockParts<Wire>? { self.server }
    /// The WebSocket, open or not; nil over plain TCP.
    final var carriage: MockCarriage? { self.webSocket }
    final var line: MockLine { self }

    init(parts: MockParts<Wire>, port: MockPort) {
        self.server = parts
        super.init(port: port)
    }

    // MARK: For subclasses

    /// The connection can be used: over WebSocket it has been opened, with this agreement.
    func isReady(_ agreement: OpeningAgreement?) {
        if let parts = self.parts { self.perform(parts.add(self), for: nil) }
    }

    /// The client has ended the WebSocket with a close frame, or it has violated the protocol.
    func isClosed(_ content: WebSocketContent) {}

    /// Takes bytes, from TCP or from messages that carry them.
    func decode(_ bytes: ByteBuffer) {}

    /// Handles the next thing that is complete.
    ///
    /// - Returns: False if nothing is.
    func handleNext() -> Bool { false }

    /// Adds output to the outbox.
    func send(_ output: Wire.Output, _ sending: Sending, for received: Received?) {}

    /// Adds raw bytes to the outbox.
    func sendRaw(_ bytes: ByteBuffer, _ dribble: Dribble?) { self.send(bytes, dribble) }

    /// Holds the following steps until the request is cancelled.
    func waitForCancel(_ request: Received, _ rest: Steps) {}

    // MARK: The connection's life

    override func begin() {
        guard let openings = self.parts?.openings else { return self.isReady(nil) }
        self.webSocket = MockCarriage(openings, on: self) { [unowned self] in
            self.isReady($0)
        } closed: { [unowned self] in
            self.isClosed($0)
        }
    }

    override func receive(_ bytes: ByteBuffer) {
        if let webSocket = self.webSocket { webSocket.receive(bytes) } else { self.decode(bytes) }
        self.resumeReading()
    }

    override func resumeReading() {
        while self.isReading, self.parts != nil, !self.hasFailed, self.handleNext() || self.decodeNext() {}
        self.flush()
    }

    /// Takes the next bytes that messages carry.
    private func decodeNext() -> Bool {
        guard !self.hasFailed, self.isReading, let bytes = self.webSocket?.next() else { return false }
        self.decode(bytes)
        return true
    }

    /// Decodes nothing more.
    final func fail() { self.hasFailed = true }

    override func handleEnd() {
        self.webSocket = nil
        self.server = nil
    }

    // MARK: Reacting

    final func send(_ sending: Sending, for received: Received?) {
        switch sending.content {
        case .raw(let bytes): self.sendRaw(sending.flaws.cut(bytes).repeated(sending.copies), sending.dribble)
        case .output(let output): self.send(output, sending, for: received)
        }
    }
}
