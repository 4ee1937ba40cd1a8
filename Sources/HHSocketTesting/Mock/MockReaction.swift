// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A reaction of a mock server to something received, to a new connection, or to a test's request.
///
/// Reactions are composed of simple ones, modified, and combined in sequence. A wire determines what can be sent; the
/// rest is common to all. Reactions of a ``MockServer``:
///
/// ```swift
/// .echo
/// .answer("hello").delayed(by: .seconds(2))
/// .status(.overloaded)
/// .echo.dribbled()
/// .echo.cut(after: 10).then(.reset)
/// .glued(.push(2001, "news"), .echo, .push(2001, "more"))
/// .echo.held(until: 3, release: .reversed)
/// ```
///
/// Reactions of a ``MockWebSocketServer``:
///
/// ```swift
/// .echo
/// .text("fine").delayed(by: .seconds(2))
/// .echo.fragmented(length: 3).dribbled()
/// .glued(.text("before"), .frame(.text("masked").masked()))
/// .frame(.text("part").unfinished())
/// .close(code: 1012, reason: "restart")
/// .disconnect
/// ```
///
/// Reactions of a ``LineServer``:
///
/// ```swift
/// .echo
/// .line("fine").delayed(by: .seconds(2))
/// .line("ä").dribbled()
/// .line("half of it").cut(after: 4).then(.disconnect)
/// .raw([0xFF, 0x0A])
/// ```
///
/// Reactions of a ``MockBroker``:
///
/// ```swift
/// .handle
/// .handle.delayed(by: .seconds(2))
/// .error("no permission").then(.disconnect)
/// .frame(STOMPFrame(.receipt, ["receipt-id": "unknown"]))
/// .handle.then(.goSilent)
/// .raw("MESSAGE\nno colon\n\n\0".utf8)
/// ```
///
/// Output that a reaction sends without a wait in between goes out in one write, so that a client finds it in one read.
/// A reaction that requires something received, such as an echo, does nothing without it.
public struct MockReaction<Wire: MockWire>: Sendable {
    let steps: [MockStep<Wire>]

    init(steps: [MockStep<Wire>]) {
        self.steps = steps
    }

    init(_ output: Wire.Output) {
        self.steps = [.send(MockSending(content: .output(output)))]
    }

    // MARK: What is done

    /// Chooses a reaction to what was received: `{ $0.connection == 0 ? .reset : .drop }`. Runs on the server's event
    /// loop, in the order of arrival, and must not block.
    public static func respond(_ decide: @escaping @Sendable (Wire.Received) -> Self) -> Self {
        Self(steps: [.decide { decide($0).steps }])
    }

    /// Performs one of `reactions`, chosen by the server's seeded generator.
    public static func oneOf(_ reactions: Self...) -> Self { Self(steps: [.choose(reactions.map(\.steps))]) }

    /// Does nothing.
    public static var drop: Self { Self(steps: []) }

    /// Sends bytes unchanged: in a broker's messages, but outside of all others of a WebSocket.
    public static func raw(_ bytes: some Sequence<UInt8>) -> Self { .raw(ByteBuffer(bytes: bytes)) }

    package static func raw(_ bytes: ByteBuffer) -> Self { Self(steps: [.send(MockSending(content: .raw(bytes)))]) }

    /// Sends this text's UTF-8.
    package static func raw(_ text: String) -> Self { .raw(ByteBuffer(string: text)) }

    /// Closes TCP after everything that was sent before.
    public static var disconnect: Self { Self(steps: [.close]) }

    /// Resets the connection (RST), which may discard bytes that were sent but not read yet.
    public static var reset: Self { Self(steps: [.reset]) }

    /// Closes the server's direction of TCP, after everything that was sent before, and continues reading.
    public static var halfClose: Self { Self(steps: [.halfClose]) }

    /// Stops reading and sending on this connection, heart-beats included, without closing it, like a machine with an
    /// unplugged cable.
    public static var goSilent: Self { Self(steps: [.goSilent]) }

    /// Stops reading from this connection; output is still sent.
    public static var stopReading: Self { Self(steps: [.stopReading]) }

    /// Ends ``goSilent`` and ``stopReading``. Output during the silence is lost.
    public static var wakeUp: Self { Self(steps: [.wakeUp]) }

    // MARK: Adverbs

    /// Waits first, by the server's clock. The server reacts to other input meanwhile.
    public func delayed(by duration: Duration) -> Self { Self(steps: [.wait(duration)] + self.steps) }

    /// Waits until this reaction has been reached `count` times, on any connections; then they are performed in this
    /// order, those of one connection in one write. The next `count` times form the next group.
    public func held(until count: Int, release order: MockReleaseOrder = .inOrder) -> Self {
        Self(steps: [.hold(MockGate(count: count, order: order))] + self.steps)
    }

    /// Sends a few bytes at a time, in separate writes; frames that a WebSocket carries in separate messages. Nothing
    /// else is sent on the connection meanwhile.
    ///
    /// - Parameters:
    ///   - bytes: The number of bytes in one write; 1 by default.
    ///   - interval: The time between two writes, by the server's clock; none by default.
    public func dribbled(bytes: Int = 1, every interval: Duration = .zero) -> Self {
        self.changingSends { $0.dribble = Dribble(bytes: max(1, bytes), interval: interval) }
    }

    /// Sends only the first `bytes` bytes of each frame, of each line with its delimiter, or of raw bytes.
    public func cut(after bytes: Int) -> Self { self.changingSends { $0.flaws.keptBytes = bytes } }

    /// Sends each frame, line or message `count` times.
    public func times(_ count: Int) -> Self { self.changingSends { $0.copies = max(0, count) } }

    /// Sends each frame, line or message twice.
    package func twice() -> Self { self.times(2) }

    // MARK: Rows

    /// Performs this reaction, then `next`. A wait in either delays everything after it.
    public func then(_ next: Self) -> Self { Self(steps: self.steps + next.steps) }

    /// Performs all of them in this order. Output that they send without waiting goes out in one write.
    public static func glued(_ reactions: Self...) -> Self { .glued(reactions) }

    /// Performs all of them in this order.
    package static func glued(_ reactions: [Self]) -> Self { Self(steps: reactions.flatMap(\.steps)) }

    // MARK: For wires

    func changingSends(_ change: @escaping @Sendable (inout MockSending<Wire.Output>) -> Void) -> Self {
        Self(steps: self.steps.map { $0.changingSends(change) })
    }

    /// Changes what is sent, except raw bytes.
    func changingOutput(_ change: @escaping @Sendable (inout Wire.Output) -> Void) -> Self {
        self.changingSends { sending in
            guard case .output(var output) = sending.content else { return }
            change(&output)
            sending.content = .output(output)
        }
    }
}
