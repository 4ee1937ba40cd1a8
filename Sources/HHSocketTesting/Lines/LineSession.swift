// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a ``LineServer``.
final class LineSession: MockSession<LineWire> {
    private let delimiter: LineDelimiter
    /// Without a limit, so that everything that can be read is recorded.
    private var decoder: LineDecoder

    override init(parts: MockParts<LineWire>, port: MockPort) {
        self.delimiter = parts.wire.delimiter
        self.decoder = LineDecoder(delimiter: parts.wire.delimiter, maximumLength: .max)
        super.init(parts: parts, port: port)
    }

    override func decode(_ bytes: ByteBuffer) { self.decoder.append(bytes) }

    override func handleNext() -> Bool {
        guard let parts = self.parts, let bytes = try? self.decoder.next() else { return false }
        let line = Received(connection: self.number, bytes: bytes)
        parts.received.append(line)
        self.perform(parts.reaction(to: line.text), for: line)
        return true
    }

    override func send(_ output: LineWire.Output, _ sending: Sending, for received: Received?) {
        let line: ByteBuffer? =
            switch output.source {
            case .echo: received?.bytes
            case .line(let line): line
            }
        guard var line else { return }
        line.writeBytes(self.delimiter.bytes)
        self.send(sending.flaws.cut(line).repeated(sending.copies), sending.dribble)
    }
}
