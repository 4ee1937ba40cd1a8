// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The opening handshake of one connection of a mock. Confined to the server's event loop.
final class MockUpgrade: MockPerformer {
    unowned let line: MockLine
    private let openings: MockOpenings
    private let opened: (OpeningAgreement) -> Void
    private var reader = OpeningRequestReader()
    private var head: OpeningRequestHead?
    private var isRejected = false

    /// - Parameter opened: Called when an acceptance, right or wrong, has been put into the outbox.
    init(_ openings: MockOpenings, on line: MockLine, opened: @escaping (OpeningAgreement) -> Void) {
        self.openings = openings
        self.line = line
        self.opened = opened
    }

    /// Handles bytes of the request, and bytes after it.
    func receive(_ bytes: ByteBuffer) {
        self.reader.append(bytes)
        guard self.head == nil, !self.isRejected else { return }
        do throws(OpeningRejection) {
            guard let head = try self.reader.next() else { return }
            self.head = head
            let request = OpeningWire.Received(
                connection: self.line.number,
                path: head.path,
                query: head.query,
                headers: head.headers.all.map { ($0.name, $0.value) },
                subprotocols: head.subprotocols
            )
            self.openings.received.append(request)
            self.perform(self.openings.answer(number: self.line.number), for: request)
        } catch {
            self.reject(error)
        }
    }

    /// Returns the bytes after the request.
    func takeRest() -> ByteBuffer { self.reader.takeRest() }

    private func reject(_ rejection: OpeningRejection) {
        self.isRejected = true
        self.line.send(rejection.encode())
        self.line.append(.close)
        self.line.flush()
    }

    /// Not used: a request to open a WebSocket cannot be cancelled.
    func waitForCancel(_ request: OpeningWire.Received, _ rest: ArraySlice<MockStep<OpeningWire>>) {}

    func send(_ sending: MockSending<OpeningWire.Output>, for request: OpeningWire.Received?) {
        guard !self.isRejected else { return }
        let bytes: ByteBuffer
        var agreement: OpeningAgreement?
        switch sending.content {
        case .raw(let raw):
            bytes = raw
        case .output(let acceptance):
            guard let head = self.head else { return }
            switch self.openings.rules.decide(head) {
            case .reject(let rejection):
                return self.reject(rejection)
            case .upgrade(var agreed, _):
                if self.openings.takesAnySubprotocol, agreed.subprotocol == nil {
                    agreed.subprotocol = head.subprotocols.first
                }
                bytes = self.response(to: head, agreed, acceptance.edits)
                if sending.flaws.keptBytes == nil, sending.copies > 0 { agreement = agreed }
            }
        }
        self.line.send(sending.flaws.cut(bytes).repeated(sending.copies), sending.dribble)
        if let agreement { self.opened(agreement) }
    }

    private func response(
        to head: OpeningRequestHead,
        _ agreement: OpeningAgreement,
        _ edits: [OpeningWire.Edit]
    ) -> ByteBuffer {
        var fields: [(name: String, value: String)] = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
        fields.append(("Sec-WebSocket-Accept", head.key?.accept ?? ""))
        if let subprotocol = agreement.subprotocol { fields.append(("Sec-WebSocket-Protocol", subprotocol)) }
        if let offers = try? head.deflateOffers(),
            let answer = self.openings.rules.deflate?.agreement(offers: offers)?.answer
        {
            fields.append(("Sec-WebSocket-Extensions", "\(answer)"))
        }
        for edit in edits {
            switch edit {
            case .remove(let name):
                fields.removeAll { $0.name.lowercased() == name.lowercased() }
            case .set(let name, let value):
                let index = fields.firstIndex { $0.name.lowercased() == name.lowercased() }
                if let index { fields[index].value = value } else { fields.append((name, value)) }
            case .add(let name, let value):
                fields.append((name, value))
            }
        }
        let lines = fields.map { "\($0.name): \($0.value)\r\n" }.joined()
        return ByteBuffer(string: "HTTP/1.1 101 Switching Protocols\r\n\(lines)\r\n")
    }
}
