// SPDX-License-Identifier: Apache-2.0
import InstrumentedHHSocketLink

/// The targets of fuzzing. The first argument names one; the others are libFuzzer's.
enum Target: String, CaseIterable {
    /// Any bytes as a stream of the standard format.
    case standard
    /// Any bytes as a stream of another preset, or of a layout that the input describes.
    case layouts
    /// Frames that the input describes, in any of these formats, encoded and decoded.
    case frames
    /// Any bytes as the JSON description of a layout.
    case description
    /// Any bytes as a message, by both engines.
    case messages
    /// The codec of WebSocket: any bytes, frames that the input describes, and messages that are encoded and decoded.
    case websocket
    /// The opening handshake of WebSocket: any bytes as a request, a response or a URL, and one side with the other.
    case opening
    /// Any bytes as lines, and lines that are written and read.
    case lines
    /// Any bytes as frames of STOMP, in each version; and frames that are encoded and decoded.
    case stomp
    /// The streams of one side of a connection, whose other side sends the frames that the input describes.
    case streams
}

nonisolated(unsafe) private var target = Target.standard

@_silgen_name("LLVMFuzzerRunDriver")
private func runFuzzer(
    _ count: UnsafeMutablePointer<CInt>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ test: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt
) -> CInt

/// SwiftPM renames `main` to this.
@_cdecl("Fuzz_main")
public func main(
    _ count: CInt,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> CInt {
    guard count > 1, let name = arguments[1], let chosen = Target(rawValue: String(cString: name)) else {
        print("say what to fuzz: \(Target.allCases.map(\.rawValue).joined(separator: ", "))")
        return 64
    }
    target = chosen
    // That argument is hidden from libFuzzer.
    for index in 1..<Int(count) { arguments[index] = arguments[index + 1] }
    var remaining = count - 1
    var rest = arguments
    return runFuzzer(&remaining, &rest, testOne)
}

private func testOne(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = Array(UnsafeBufferPointer(start: start, count: count))
    switch target {
    case .standard: StreamFuzz.run(bytes, format: .standard)
    case .layouts: StreamFuzz.run(bytes, format: nil)
    case .frames: FrameFuzz.run(bytes)
    case .description: DescriptionFuzz.run(bytes)
    case .messages: MessageFuzz.run(bytes)
    case .websocket: WebSocketFuzz.run(bytes)
    case .opening: OpeningFuzz.run(bytes)
    case .lines: LineFuzz.run(bytes)
    case .stomp: STOMPFuzz.run(bytes)
    case .streams: CallStreamFuzz.run(bytes)
    }
    return 0
}

/// Requires a condition that holds for every input.
func require(_ condition: Bool, _ message: @autoclosure () -> String) {
    guard condition else { fatalError(message()) }
}
