// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import HHSocket

/// The result of a negotiation.
struct Negotiated: Equatable {
    enum End: Equatable {
        case waiting, connected
        case failed(ProxyFailure.Reason)
    }

    /// All sent bytes, including the first request, and none after the end.
    var sent: [UInt8]
    var end = End.waiting
    /// The bytes after the proxy's answer.
    var rest: [UInt8] = []
    /// The failure's text.
    var text = ""
}

/// Feeds the pieces one by one, then the proxy closes the connection if `closes`.
func negotiate(
    _ initial: some ProxyNegotiation,
    _ pieces: some Sequence<some Collection<UInt8>>,
    closes: Bool = false
) -> Negotiated {
    var negotiation = initial
    var result = Negotiated(sent: Array(buffer: negotiation.begin()))
    var bytes = ByteBuffer()
    func fail(_ failure: ProxyFailure) {
        result.end = .failed(failure.reason)
        result.text = failure.description
    }
    pieces: for piece in pieces {
        bytes.writeBytes(piece)
        // Bytes after the end are the server's.
        guard result.end == .waiting else { continue }
        do throws(ProxyFailure) {
            while true {
                switch try negotiation.receive(&bytes) {
                case .wait: continue pieces
                case .send(let answer): result.sent += Array(buffer: answer)
                case .connected:
                    result.end = .connected
                    continue pieces
                }
            }
        } catch {
            fail(error)
        }
    }
    if result.end == .connected { result.rest = Array(buffer: bytes) }
    if result.end == .waiting, closes { fail(negotiation.closed()) }
    return result
}

/// Returns the bytes undivided, in two pieces cut at every place, and byte by byte.
func splits(of bytes: [UInt8]) -> [[[UInt8]]] {
    let cut = bytes.indices.dropFirst().map { [Array(bytes[..<$0]), Array(bytes[$0...])] }
    return [[bytes], bytes.map { [$0] }] + cut
}
